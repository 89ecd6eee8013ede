// What stands behind an attune_context: a Context for each process that has a copy of it.
//
// A forked child has the parent's memory, but not the threads that may have held any lock of its Context, changed a map
// or worked in the pool. So a child makes a Context of its own at its first call, from the same options, and leaves the
// parent's alone: no lock is taken for a fork, and none has to be known here.
#pragma once

#include <atomic>
#include <string>

#include "core/forks.hpp"
#include "dispatch/context.hpp"

namespace attune {

class ProcessContext {
 public:
  explicit ProcessContext(const attune_options& options);
  ProcessContext(const ProcessContext&) = delete;
  ProcessContext& operator=(const ProcessContext&) = delete;
  ~ProcessContext();

  // That of this process. Thread-safe.
  Context& here() {
    OfProcess* latest = latest_.load(std::memory_order_acquire);
    if (latest->lives_here()) [[likely]]
      return latest->context;
    return of_child(latest);
  }

 private:
  struct OfProcess {
    explicit OfProcess(const attune_options& options) : context(options) {}
    bool lives_here() const { return forks_before == forks(); }

    const uint32_t forks_before = forks();
    Context context;
  };

  Context& of_child(OfProcess* latest);

  const std::string kernel_;
  attune_options options_;
  std::atomic<OfProcess*> latest_;
};

}  // namespace attune
