// The commands of `attune`. Each lives in a file of its own, adds itself to the command line, and leaves an exit
// status.
#pragma once

#include <CLI/CLI.hpp>

namespace attune::lab {

enum ExitStatus {
  exit_ok = 0,
  exit_failed_check = 1,
  exit_bad_input = 2,
  exit_unsupported = 3,
  exit_unclear = 4,
  exit_output_lost = 5
};

void add_run(CLI::App& app, int& status);
void add_check(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_doctor(CLI::App& app, int& status);
void add_info(CLI::App& app, int& status);
void add_explain(CLI::App& app, int& status);
void add_pack(CLI::App& app, int& status);
void add_selection(CLI::App& app, int& status);
void add_report(CLI::App& app, int& status);
void add_evidence(CLI::App& app, int& status);
void add_guard(CLI::App& app, int& status);
void add_ladder(CLI::App& app, int& status);
void add_llama(CLI::App& app, int& status);
void add_try(CLI::App& app, int& status);
void add_trial(CLI::App& app, int& status);

}  // namespace attune::lab
