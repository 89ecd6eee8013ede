// Check first, then time: what `run` and `bench` do with a problem. All times come from the engine of lab/measure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/check/backend.hpp"
#include "lab/measure/callee.hpp"
#include "lab/measure/engine.hpp"

namespace attune::lab {

// One thing to be timed: a kernel of this library, of another build of it, or a plug-in.
struct Entrant {
  std::string name;     // in tables
  std::string kernel;   // "": the library's own choice
  std::string library;  // path of another libattune.so, or ""
  std::string plugin;   // path of a plug-in, or ""
};

struct TimedEntrant {
  std::string name;
  std::string kernel;  // that ran; "" for another library or a plug-in
  Outcome check;       // of this library's kernels; others are timed as they come
  Summary summary;
  std::optional<Comparison> against_first;  // time over the first entrant's
  std::vector<std::vector<Sample>> rounds;
};

struct TimedProblem {
  std::string problem;
  double flops = 0;
  std::vector<TimedEntrant> entrants;
  std::optional<NoiseFloor> noise_floor;
  Outcome failed;  // when a check failed, nothing is timed and this is it
  bool timed() const { return !entrants.empty(); }
};

struct TimingOptions {
  Protocol protocol;
  uint64_t seed = 1;
  bool twin = true;  // run the first entrant twice, as the noise floor
  bool check_all_rows = false;
};

// Throws ATTUNE_UNSUPPORTED if an entrant of this library cannot take the problem.
TimedProblem time_problem(const std::string& problem, const std::vector<Entrant>& entrants, Backend& backend,
                          cpu::Threads& threads, const TimingOptions& options, const ProgressCallback& progress);

}  // namespace attune::lab
