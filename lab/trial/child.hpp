// Asks a process of its own (lab/trial/job.hpp) and waits for its answer. Whoever crashes or hangs there takes nothing
// else along: the answer says who was at work.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lab/trial/job.hpp"

namespace attune::lab {

struct TrialOptions {
  double limit_seconds = 60;  // that one step of an entrant may take: a call, or what comes before the first one
  std::string python = "python3";
};

struct TrialAnswer {
  std::vector<Outcome> outcomes;  // of a check, as far as it came
  bool done = false;              // that was all of them
  std::optional<Rounds> rounds;   // of a measurement
  // Where neither came to its end:
  std::string lost;                     // what happened to the process, a sentence without a subject
  std::optional<attune_status> status;  // where it reported an error itself
  int at = -1;                          // the entrant that was at work; -1: none
};

using TrialProgress = std::function<void(const AtWork&)>;
TrialAnswer run_trial(const nlohmann::json& job, const TrialOptions& options, const TrialProgress& progress = {});

// Each job in a process of its own, `at_once` of them at a time; the answers are in the order of the jobs. `progress`
// is told the job, never by two at the same time.
using TrialsProgress = std::function<void(size_t job, const AtWork&)>;
std::vector<TrialAnswer> run_trials(const std::vector<nlohmann::json>& jobs, const TrialOptions& options,
                                    size_t at_once, const TrialsProgress& progress = {});

// An entrant judged. Whoever is lost has failed the case that it was at, with what happened as the failure, and has no
// outcome at the cases after it.
std::vector<Outcome> judge_apart(const CheckJob& job, const TrialOptions& options);

}  // namespace attune::lab
