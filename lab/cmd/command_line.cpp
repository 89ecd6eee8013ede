#include "lab/cmd/command_line.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>

#include "core/error.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/output.hpp"

namespace attune::lab {
namespace {

int exit_status_of(attune_status status) {
  if (status == ATTUNE_INVALID_ARGUMENT) return exit_bad_input;
  if (status == ATTUNE_UNSUPPORTED || status == ATTUNE_NO_DEVICE) return exit_unsupported;
  return exit_failed_check;
}

int run_commands(int argc, char** argv) {
  CLI::App app{"Attune: fused attention, checked against float64 and measured with intervals.", "attune"};
  app.footer(
      "exit status: 0 all passed, 1 a check failed, 2 bad input, 3 not supported here, 4 too noisy to tell,\n"
      "5 the output could not be written\n\n"
      "examples:\n"
      "  attune run                                        check, then time, what the machine can do\n"
      "  attune check --all                                every set, hostile input and oracle\n"
      "  attune check 'fwd b1 h8/8 q512 k512 d64 f16 causal-br'\n"
      "  attune try mine.cu                                your kernel: is it right, how fast, and what limits it?\n"
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
  add_ladder(app, status);
  add_llama(app, status);
  add_try(app, status);
  add_trial(app, status);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) fmt::print("{}", app.help());
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_bad_input;
  } catch (const Error& error) {
    remark("attune: {}\n", error.what());
    return exit_status_of(error.status);
  }
  return status;
}

}  // namespace

int run_command_line(int argc, char** argv) {
  prepare_output();
  try {
    const int status = run_commands(argc, argv);
    flush_output();
    return status;
  } catch (const OutputLost& error) {
    remark("attune: {}\n", error.what());
    return exit_output_lost;
  } catch (const std::system_error& error) {
    const bool lost = std::ferror(stdout) != 0;  // then this is what {fmt} throws
    remark("attune: {}\n", lost ? OutputLost(error.code()).what() : error.what());
    return lost ? exit_output_lost : exit_failed_check;
  } catch (const std::exception& error) {
    remark("attune: {}\n", error.what());
    return exit_failed_check;
  }
}

}  // namespace attune::lab
