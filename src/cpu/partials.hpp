// The results of a task's splits until all of them are there to be joined. Their memory comes with the first split and
// goes when they are joined, so that the few tasks at work find theirs in a cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "cpu/threads.hpp"

namespace attune::cpu {

class Partials {
 public:
  Partials() = default;
  ~Partials() { give_back(); }
  Partials(const Partials&) = delete;
  Partials& operator=(const Partials&) = delete;

  // The same memory for every split. Those that come at once may each bring some: one is kept, and nobody waits.
  double* memory(Threads& threads, int64_t doubles) {
    Threads::Scratch* there = memory_.load(std::memory_order_acquire);
    if (there == nullptr) {
      const size_t bytes = static_cast<size_t>(doubles) * sizeof(double);
      auto mine = std::make_unique<Threads::Scratch>(threads.scratch(bytes));
      if (memory_.compare_exchange_strong(there, mine.get(), std::memory_order_acq_rel)) there = mine.release();
    }
    return static_cast<double*>(there->data());
  }

  // Ends a split. True for the last of them: what the others have written is there.
  bool end_split(int64_t splits) { return ended_.fetch_add(1, std::memory_order_acq_rel) + 1 == splits; }

  void give_back() { delete memory_.exchange(nullptr, std::memory_order_relaxed); }

 private:
  std::atomic<Threads::Scratch*> memory_{nullptr};
  std::atomic<int64_t> ended_{0};
};

}  // namespace attune::cpu
