// The command line as a whole: every command, and what their errors mean to the caller.
#pragma once

namespace attune::lab {

// Returns the exit status of the process.
int run_command_line(int argc, char** argv);

}  // namespace attune::lab
