// attune trial: the process in which code from outside is judged and timed. Started by the other commands, and told on
// standard input what to do (lab/trial/job.hpp).
#include <iostream>
#include <string>

#include "core/error.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/trial/job.hpp"

namespace attune::lab {

void add_trial(CLI::App& app, int& status) {
  const auto descriptor = std::make_shared<int>(-1);
  CLI::App* command = app.add_subcommand("trial", "judge and time code from outside, for the other commands");
  command->group("");  // not for people
  command->add_option("descriptor", *descriptor, "where the answer is written")->required();
  command->callback([descriptor, &status] {
    size_t jobs = 0;
    for (std::string text; std::getline(std::cin, text); ++jobs) {
      const nlohmann::json job = nlohmann::json::parse(text, nullptr, false);
      if (!job.is_object()) break;
      serve(job, *descriptor);
    }
    if (jobs == 0) fail(ATTUNE_INVALID_ARGUMENT, "standard input has no job; other commands start this one");
    status = exit_ok;
  });
}

}  // namespace attune::lab
