// Judge first, then time: what `run`, `bench` and `guard` do with a problem. All times come from the engine of
// lab/measure. Code from outside is judged and timed in processes of their own: what crashes or hangs there costs its
// own row.
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
#include "lab/trial/child.hpp"
#include "lab/trial/rounds.hpp"

namespace attune::lab {

// Of a number of threads over another, inside rounds.
struct SpeedOver {
  int threads;  // the other
  RoundRatio ratio;
};

struct TimedEntrant {
  std::string name;
  std::string config;  // that was asked for
  std::string kernel;  // of this library that ran; "" for code from outside
  Outcome check;
  int threads = 0;  // that computed it; 0 on a GPU
  Summary summary;
  std::vector<Share> shares;                  // of the ceilings that may bound it, the one that does first
  std::string alarm;                          // more than the ceiling allows, or ""
  std::optional<Comparison> against_first;    // time over the first entrant's with as many threads, as far as the noise
                                              // allows a verdict
  bool drowned = false;                       // its verdict was taken back: the noise is larger
  std::optional<SpeedOver> over_first_count;  // speed over the same contender's with the first number of threads
  std::vector<std::vector<Sample>> rounds;

  const Share& share() const { return shares.front(); }
};

// Who takes no part at a problem. wrong: by the check. refused: does not take the problem. lost: crashed, hung or gave
// up.
struct NotTimed {
  enum class Kind { wrong, refused, lost };
  Entrant entrant;
  Kind kind;
  std::string why;
  Outcome check;  // as far as it got
};
std::string_view name_of(NotTimed::Kind kind);

struct TimedProblem {
  std::string problem;
  double flops = 0;
  std::vector<TimedEntrant> entrants;  // those that passed, in their order
  std::vector<NotTimed> not_timed;
  std::optional<NoiseFloor> noise_floor;
  std::map<std::string, double> probe_work;  // operations or bytes of a probe's call, by its contender
  Result result;                             // all of it, twin and probes included
};

class Timekeeper {
 public:
  // twin: the first entrant runs twice, as the noise floor.
  Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin,
             TrialOptions trials = {});
  ~Timekeeper();

  TimedProblem time(const std::string& problem, const std::vector<Entrant>& entrants, const ProgressCallback& progress);

  const Ceiling& gpu_matmul();                                      // measured once
  const CeilingFigures& cpu_ceilings() const { return ceilings_; }  // in the rounds of the problems timed so far
  bool on_gpu() const { return gpu_ != nullptr; }
  int sm_count() const { return gpu_ ? gpu_->properties().sm_count : 0; }
  const std::string& mode() const { return protocol_.mode; }
  Facts environment() const;  // of the machine and its GPU

 private:
  struct Candidate {
    Entrant entrant;
    Outcome check;
  };

  std::vector<Candidate> judge(const std::string& problem, const std::vector<Entrant>& entrants,
                               const ProgressCallback& progress, std::vector<NotTimed>& not_timed);
  std::vector<Outcome> check_own(const Case& what, const std::vector<Entrant>& entrants);
  // Takes those that are lost while they are timed out of the candidates.
  std::optional<Rounds> measure(const Problem& parsed, const std::string& problem, std::vector<Candidate>& candidates,
                                const ProgressCallback& progress, std::vector<NotTimed>& not_timed);
  void conclude(const Problem& parsed, const std::vector<Candidate>& candidates, Rounds rounds, TimedProblem& result);
  std::vector<std::vector<std::string>> ceilings_of(const Problem& parsed,
                                                    const std::vector<Candidate>& candidates) const;

  Backend& backend_;
  cpu::Threads& threads_;
  ThreadPools pools_{threads_};
  Protocol protocol_;
  uint64_t seed_;
  bool twin_;
  std::unique_ptr<CudaGpu> gpu_;
  Trials trials_;
  std::optional<Ceiling> matmul_;
  CeilingFigures ceilings_;
};

}  // namespace attune::lab
