// One check from end to end: inputs, kernel, reference, gate or oracle. A Case is all it takes to repeat one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/check/gate.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/oracle.hpp"

namespace attune::lab {

struct Case {
  std::string problem;  // in the text form
  std::string kernel;   // "": the library's own choice
  InputKind input = InputKind::normal;
  uint64_t seed = 1;
  Storage storage = Storage::dense;
  std::optional<Oracle> oracle;  // instead of the gate
  std::string option{};          // that brings code from outside, "--plugin ./mine.so"; "": a kernel of this library
};

// The command that repeats the case.
std::string reproducer(const Case& c);

struct Outcome {
  Case of;                     // with the name of the kernel that ran
  std::string why;             // why that kernel
  std::string unsupported;     // why nothing ran, or ""
  std::string not_applicable;  // why the oracle says nothing, or ""
  Judgement judgement;         // for an oracle only ok, failure and worst; of several outputs that nearest to its bound
  std::vector<Judgement> outputs = {};  // of each output, where an operation has others than o and lse
  bool ok() const { return judgement.ok; }
};

// A kernel and what runs it: one kernel may run in several configurations, each by an executor of its own.
struct Contestant {
  Executor* executor;
  std::string kernel;
};

class Checker {
 public:
  Checker(Executor& executor, ReferenceSource& reference, cpu::Threads& threads, RowPolicy policy = {},
          const Accuracy& accuracy = frozen_accuracy());

  Outcome check(const Case& c);

  // The same case for several kernels: inputs, reference and Ideal are made once.
  std::vector<Outcome> check(const Case& c, std::span<const std::string> kernels);
  std::vector<Outcome> check(const Case& c, std::span<const Contestant> contestants);

  Executor& executor() { return executor_; }

 private:
  // Of each output that is judged.
  struct Truth {
    std::vector<RowChoice> rows;
    std::vector<ReferenceRows> reference;
    std::vector<Ideal> ideal;
  };
  Truth truth_of(const Tensors& tensors, uint64_t seed);
  void pronounce(const Tensors& tensors, const Truth& truth, Outcome& outcome);
  Outcome consult_oracle(const Case& c, const Problem& problem);

  Executor& executor_;
  ReferenceSource& reference_;
  cpu::Threads& threads_;
  RowPolicy policy_;
  const Accuracy& accuracy_;
};

}  // namespace attune::lab
