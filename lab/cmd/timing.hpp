// Check first, then time: what `run` and `bench` do with a problem. All times come from the engine of lab/measure.
#pragma once

#include <map>
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
  int threads = 0;      // on a CPU; 0: what the library takes by itself

  bool own() const { return library.empty() && plugin.empty(); }
  // But for the number of threads.
  bool same_code(const Entrant& other) const {
    return kernel == other.kernel && library == other.library && plugin == other.plugin && config == other.config;
  }
};

// Of a number of threads over another, inside rounds.
struct SpeedOver {
  int threads;  // the other
  RoundRatio ratio;
};

struct TimedEntrant {
  std::string name;
  std::string config;  // that was asked for
  std::string kernel;  // that ran; "" for another library or a plug-in
  Outcome check;       // of this library's kernels; others are timed as they come
  int threads = 0;     // that computed it; 0 on a GPU
  Summary summary;
  std::vector<Share> shares;                  // of the ceilings that may bound it, the one that does first
  std::optional<Comparison> against_first;    // time over the first entrant's with as many threads
  std::optional<SpeedOver> over_first_count;  // speed over the same contender's with the first number of threads
  std::vector<std::vector<Sample>> rounds;

  const Share& share() const { return shares.front(); }
};

struct TimedProblem {
  std::string problem;
  double flops = 0;
  std::vector<TimedEntrant> entrants;  // empty when a check failed: what is wrong is not timed
  std::optional<Outcome> failed;
  std::optional<NoiseFloor> noise_floor;
  std::map<std::string, double> probe_work;  // operations or bytes of a probe's call, by its contender
  Result result;                             // all of it, twin and probes included
};

class Timekeeper {
 public:
  // twin: the first entrant runs twice, as the noise floor.
  Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin);
  ~Timekeeper();

  // Throws ATTUNE_UNSUPPORTED if an entrant of this library cannot take the problem.
  TimedProblem time(const std::string& problem, const std::vector<Entrant>& entrants, const ProgressCallback& progress);

  const Ceiling& gpu_matmul();                                      // measured once
  const CeilingFigures& cpu_ceilings() const { return ceilings_; }  // in the rounds of the problems timed so far
  bool on_gpu() const { return gpu_ != nullptr; }
  const std::string& mode() const { return protocol_.mode; }
  Facts environment() const;  // of the machine and its GPU

 private:
  // Of those that are kernels of this library, in their order.
  std::vector<Outcome> check(const std::string& problem, const std::vector<Entrant>& entrants);
  std::unique_ptr<Contender> contender(const Entrant& entrant, const std::string& kernel,
                                       const std::shared_ptr<InputSource>& inputs);
  cpu::Threads& threads(int count);  // a pool of that size; 0: the lab's own

  Backend& backend_;
  cpu::Threads& threads_;
  Protocol protocol_;
  uint64_t seed_;
  bool twin_;
  std::unique_ptr<CudaGpu> gpu_;
  std::optional<Ceiling> matmul_;
  CeilingFigures ceilings_;
  std::map<int, std::unique_ptr<cpu::Threads>> pools_;
};

}  // namespace attune::lab
