// Threads for the CPU kernels: the library's own pool, those of the process's OpenMP runtime, or whatever the host
// lends through parallel_for; and the working memory of the bodies that run on them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "attune/attune.h"

namespace attune::cpu {

class Crew;  // the worker threads; threads.cpp

// Waits until `value` is no longer `old`: spinning first, then asleep until somebody notifies.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old);

class Threads {
 public:
  // The pool has options.threads threads, otherwise as many as ATTUNE_THREADS says, otherwise one per CPU the
  // process may run on. No thread is started before the first parallel_for that has use for it.
  explicit Threads(const attune_options& options);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // body(i) once for each i of 0..count-1, in any order, in the caller's floating-point environment; returns when all
  // are done. The first exception thrown by a body is rethrown here, and bodies not yet begun may then be left out. May
  // be called from many threads at once. Called from inside a body it runs on that thread alone.
  void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

  // How many bodies may run at once. With OpenMP the runtime says it, at each call anew.
  int size() const;

  // From here on the pool serves where OpenMP's threads did; their number stays that of the runtime. For a forked
  // child, which has the memory of the runtime but not its threads: a region would wait for them forever.
  void leave_openmp() { gomp_parallel_ = nullptr; }

  // Working memory, 64-byte aligned, contents undefined; goes back when the Scratch dies. Kept between calls, because
  // fresh pages cost more than a small problem; a thread gets what it had before, which its caches may still hold.
  class Scratch;
  Scratch scratch(size_t bytes);

 private:
  struct Block {
    void* data = nullptr;
    size_t bytes = 0;
    const void* user = nullptr;  // the thread that had it last
  };

  Crew& crew();
  void give_back(Block block) noexcept;

  attune_parallel_for lent_ = nullptr;
  void* lent_user_ = nullptr;
  attune_gomp_parallel gomp_parallel_ = nullptr;
  int (*omp_get_max_threads_)() = nullptr;
  int size_ = 1;
  std::atomic<Crew*> crew_{nullptr};
  std::mutex blocks_mutex_;
  std::vector<Block> blocks_;
};

class Threads::Scratch {
 public:
  Scratch(Threads& owner, Block block) : owner_(owner), block_(block) {}
  Scratch(Scratch&& other) noexcept : owner_(other.owner_), block_(std::exchange(other.block_, {})) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch() {
    if (block_.data != nullptr) owner_.give_back(block_);
  }

  void* data() const { return block_.data; }

 private:
  Threads& owner_;
  Block block_;
};

}  // namespace attune::cpu
