// Check first, then time: what `run` and `bench` do with a problem. All times come from the engine of lab/measure.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lab/check/backend.hpp"
#include "lab/measure/cuda_gpu.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/forward_contender.hpp"
#include "lab/measure/share.hpp"

namespace attune::lab {

// One thing to be timed: a kernel of this library, another build of it, or a plug-in.
struct Entrant {
  std::string name;     // in tables
  std::string kernel;   // "": the library's own choice
  std::string library;  // path of another libattune.so, or ""
  std::string plugin;   // path of a plug-in, or ""
  std::string config;   // of the kernel's configurations, or "": its own choice

  bool own() const { return library.empty() && plugin.empty(); }
};

struct TimedEntrant {
  std::string name;
  std::string config;  // that was asked for
  std::string kernel;  // that ran; "" for another library or a plug-in
  Outcome check;       // of this library's kernels; others are timed as they come
  Summary summary;
  Bound bound;
  std::optional<Comparison> against_first;  // time over the first entrant's
  std::vector<std::vector<Sample>> rounds;
};

struct TimedProblem {
  std::string problem;
  double flops = 0;
  std::vector<TimedEntrant> entrants;  // empty when a check failed: what is wrong is not timed
  std::optional<Outcome> failed;
  std::optional<NoiseFloor> noise_floor;
  Result result;  // all of it, twin included
};

class Timekeeper {
 public:
  // twin: the first entrant runs twice, as the noise floor.
  Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin);
  ~Timekeeper();

  // Throws ATTUNE_UNSUPPORTED if an entrant of this library cannot take the problem.
  TimedProblem time(const std::string& problem, const std::vector<Entrant>& entrants, const ProgressCallback& progress);

  // A GPU has one, `matmul`; of a CPU's, those are measured that the problems timed so far asked for.
  ProbedCeilings& ceilings() { return ceilings_; }
  bool on_gpu() const { return gpu_ != nullptr; }
  Facts environment() const;  // of the machine and its GPU

 private:
  // Of those that are kernels of this library, in their order.
  std::vector<Outcome> check(const std::string& problem, const std::vector<Entrant>& entrants);
  std::unique_ptr<Contender> contender(const Entrant& entrant, const std::string& kernel,
                                       const std::shared_ptr<InputSource>& inputs);

  Backend& backend_;
  cpu::Threads& threads_;
  Protocol protocol_;
  uint64_t seed_;
  bool twin_;
  std::unique_ptr<CudaGpu> gpu_;
  ProbedCeilings ceilings_;
};

}  // namespace attune::lab
