#include "lab/cmd/command_line.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "lab/cmd/commands.hpp"

namespace attune::lab {
namespace {

int exit_status_of(attune_status status) {
  if (status == ATTUNE_INVALID_ARGUMENT) return exit_bad_input;
  if (status == ATTUNE_UNSUPPORTED || status == ATTUNE_NO_DEVICE) return exit_unsupported;
  return exit_failed_check;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app{"Attune: fused attention, checked against float64 and measured with intervals.", "attune"};
  app.footer(
      "exit status: 0 all passed, 1 a check failed, 2 bad input, 3 not supported here, 4 too noisy to tell\n\n"
      "examples:\n"
      "  attune run                                        check, then time, what the machine can do\n"
      "  attune check --all                                every set, hostile input and oracle\n"
      "  attune check 'fwd b1 h8/8 q512 k512 d64 f16 causal-br'\n"
      "  attune doctor                                     is this machine fit to measure, and what can it do?\n"
      "  attune explain 'fwd b1 h32/8 q1 k4096 d128 bf16'  what would run, and why\n"
      "  attune COMMAND --help                             more about one command");
  app.require_subcommand(0, 1);
  int status = exit_ok;
  add_run(app, status);
  add_check(app, status);
  add_bench(app, status);
  add_doctor(app, status);
  add_info(app, status);
  add_explain(app, status);
  add_pack(app, status);
  add_selection(app, status);
  add_evidence(app, status);
  add_guard(app, status);
  add_report(app, status);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) fmt::print("{}", app.help());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_bad_input;
  } catch (const Error& error) {
    fmt::print(stderr, "attune: {}\n", error.what());
    return exit_status_of(error.status);
  } catch (const std::exception& error) {
    fmt::print(stderr, "attune: {}\n", error.what());
    return exit_failed_check;
  }
  return status;
}

}  // namespace attune::lab
