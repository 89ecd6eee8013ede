// The data that contenders of one problem are timed on: normal random, the same for all of them in a round. Never
// zeros: a card that multiplies zeros draws less power and clocks higher.
#pragma once

#include <cstdint>
#include <memory>

#include "core/problem.hpp"
#include "cpu/threads.hpp"
#include "lab/check/tensors.hpp"

namespace attune::lab {

// Makes tensors on the host and keeps the latest, since every contender asks for the same seed in turn.
class InputSource {
 public:
  InputSource(const Problem& problem, cpu::Threads& threads);

  // On the CPU, packed sequences of different lengths have no more rows in all than they fill.
  const Problem& problem() const { return problem_; }
  std::shared_ptr<const Tensors> get(uint64_t seed);

 private:
  Problem problem_;
  cpu::Threads& threads_;
  uint64_t seed_ = 0;
  std::shared_ptr<const Tensors> latest_;
};

}  // namespace attune::lab
