// The one engine behind everything in this project that prints a time: protocol v1 (docs/measuring.md).
//
//   Session session(protocol);
//   session.add(std::make_unique<CpuContender>("before", ...));        // the first one is the baseline
//   session.add_twin(std::make_unique<CpuContender>("before", ...));   // a second copy of it: the noise floor
//   session.add(std::make_unique<CpuContender>("after", ...));
//   session.add_probe(std::move(cpu_probe(...).contender), "before");  // a ceiling, for shares of it inside rounds
//   Result result = session.run(progress);
//
// Every round measures every contender: shuffled order on the way out, the reverse on the way back, so that a slow
// drift of the machine falls on all alike. Ratios are formed inside rounds. Every sample is kept. Where the protocol
// asks for quiet CPUs, all threads of the process stay on those that were quickest right before the round.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lab/measure/analysis.hpp"
#include "lab/measure/contender.hpp"
#include "lab/measure/quiet_cpus.hpp"

namespace attune::lab {

struct Progress {
  enum class Phase { prepare, warm_up, rounds };
  Phase phase = Phase::prepare;
  std::string_view contender;
  int round = 0, rounds = 0;  // round counts from 0
  double elapsed_seconds = 0;
  double expected_seconds = 0;  // of the whole run; 0 until the warm-up is over
};
// Called between batches, never inside one. May throw to end the run.
using ProgressCallback = std::function<void(const Progress&)>;

class Session {
 public:
  explicit Session(Protocol protocol, Clock& clock = steady_clock(), ProcessCpusSource process = this_process);
  ~Session();

  void add(std::unique_ptr<Contender> contender);
  // A second instance of the baseline, with buffers and graphs of its own.
  void add_twin(std::unique_ptr<Contender> twin);
  // The probe of a ceiling. Its batches last as long as those of the contender named `beside`: a machine that changes
  // its speed from one moment to the next shall do it to both alike.
  void add_probe(std::unique_ptr<Contender> probe, std::string_view beside);

  Result run(const ProgressCallback& progress = {});

 private:
  struct Entry;

  void append(std::unique_ptr<Contender> contender, Role role);
  Entry* find(std::string_view name);
  void prepare(Entry& entry, double sample_seconds, uint64_t data_seed);
  void warm_up(Entry& entry);
  int affordable_samples() const;
  std::vector<int> choose_cpus(ProcessCpus& process);
  void measure_round(int round);
  void visit(Entry& entry, int round, int samples);
  void report(Progress::Phase phase, const Entry& entry, int round = 0);
  uint64_t next_seed();

  Protocol protocol_;
  Clock& clock_;
  ProcessCpusSource process_;
  std::vector<Entry> entries_;
  ProgressCallback progress_;
  uint64_t seeds_drawn_ = 0;
  int samples_per_round_ = 0;
  const Entry* last_visited_ = nullptr;
  double begin_ = 0, expected_seconds_ = 0;
  double choice_seconds_ = 0;  // what choosing CPUs took before the warm-up
};

}  // namespace attune::lab
