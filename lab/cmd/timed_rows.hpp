// A timed problem as `attune bench` hands it on: as JSON, to a record, to the bars of CPUs.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/cmd/timing.hpp"
#include "lab/report/cpu_bars.hpp"

namespace attune::lab {

// What a check measured, and the bounds it passed.
std::map<std::string, double> figures_of(const Judgement& judgement);

// docs/measuring.md lists the fields.
nlohmann::json to_json(const TimedProblem& timed, const TimedEntrant& entrant);

// What takes no part, as JSON and for people.
nlohmann::json to_json(const std::string& problem, const NotTimed& absent);
std::string text_of(const std::string& problem, const NotTimed& absent);

// What a run of measurements comes to. unclear: noise took a verdict back, or more than a ceiling was measured; a
// verdict that is unclear by itself is a result.
class RunStatus {
 public:
  void note(const NotTimed& absent);
  void note(const TimedEntrant& entrant);
  void note_noise() { unclear_ = true; }
  // An ExitStatus: what failed counts more than what was refused, and that more than what is unclear.
  int exit_status() const;

 private:
  bool failed_ = false, refused_ = false, unclear_ = false;
};

// The first `thread_counts` entrants, which are the first kernel with each number of threads: what bars are about.
std::vector<CpuRow> cpu_rows_of(const TimedProblem& timed, size_t thread_counts);

}  // namespace attune::lab
