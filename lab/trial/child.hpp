// Asks a process of its own (lab/trial/job.hpp) and waits for its answer. Whoever crashes or hangs there takes nothing
// else along: the answer says who was at work.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
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
using TrialsProgress = std::function<void(size_t job, const AtWork&)>;

class TrialProcess;

// The processes of a command. With `keep`, one that came through its job unharmed waits for the next job of the same
// entrants: on a GPU, to start another and its CUDA takes longer than most jobs.
class Trials {
 public:
  explicit Trials(TrialOptions options, bool keep = false);
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;
  ~Trials();

  TrialAnswer run(const nlohmann::json& job, const TrialProgress& progress = {});

  // `at_once` jobs at a time, and `meanwhile` on this thread; with one at a time, before them. The answers are in the
  // order of the jobs. `progress` is never called by two at the same time.
  std::vector<TrialAnswer> run_all(const std::vector<nlohmann::json>& jobs, size_t at_once,
                                   const std::function<void()>& meanwhile = {}, const TrialsProgress& progress = {});

 private:
  std::unique_ptr<TrialProcess> process_for(const nlohmann::json& job);
  void put_back(std::unique_ptr<TrialProcess> process, const nlohmann::json& job, const TrialAnswer& answer);

  const TrialOptions options_;
  const bool keep_;
  std::mutex lock_;
  std::multimap<std::string, std::unique_ptr<TrialProcess>> waiting_;  // by what they are for
};

TrialAnswer run_trial(const nlohmann::json& job, const TrialOptions& options, const TrialProgress& progress = {});

// An entrant judged. Whoever is lost has failed the case that it was at, with what happened as the failure, and has no
// outcome at the cases after it.
std::vector<Outcome> judge_apart(const CheckJob& job, const TrialOptions& options);

}  // namespace attune::lab
