// The attune command. It is all in lab/cmd, which the tests link too.
#include "lab/cmd/command_line.hpp"

int main(int argc, char** argv) { return attune::lab::run_command_line(argc, argv); }
