#include "cpu/task_runs.hpp"

#include <utility>

namespace attune::cpu {

TaskRuns::TaskRuns(Threads& threads, int64_t runs, const SizeOf& size_of, Pack pack)
    : threads_(threads), pack_(std::move(pack)), runs_(static_cast<size_t>(runs)) {
  for (int64_t i = 0; i < runs; ++i) runs_[static_cast<size_t>(i)].size = size_of(i);
}

void TaskRuns::work(int64_t index, int64_t workers, const Compute& compute) {
  const auto count = static_cast<int64_t>(runs_.size());
  const int64_t first = count * index / workers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (first + i) % count;
    Run& run = runs_[static_cast<size_t>(at)];
    if (run.next_task.load(std::memory_order_relaxed) >= run.size.tasks) continue;
    try {
      pack(at, run);
      if (failed_.load(std::memory_order_relaxed)) return;
      const int64_t after = (at + 1) % count;
      const bool is_free = runs_[static_cast<size_t>(after)].state.load(std::memory_order_relaxed) == Run::untouched;
      draw(at, run, is_free ? after : -1, compute);
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
      give_up(run);
      throw;
    }
  }
}

// Returns when all keys of the run are packed.
void TaskRuns::pack(int64_t index, Run& run) {
  uint32_t state = Run::untouched;
  if (run.state.compare_exchange_strong(state, Run::claimed, std::memory_order_acquire)) {
    if (run.size.bytes > 0) run.packed = std::make_unique<Threads::Scratch>(threads_.scratch(run.size.bytes));
    run.state.store(Run::ready, std::memory_order_release);
    run.state.notify_all();
  }
  while ((state = run.state.load(std::memory_order_acquire)) != Run::ready) wait_while(run.state, state);
  for (uint32_t part; (part = run.next_part.fetch_add(1, std::memory_order_relaxed)) < run.size.parts;) {
    if (failed_.load(std::memory_order_relaxed)) return give_up(run);
    pack_(index, part, static_cast<char*>(run.packed->data()));
    if (run.packed_parts.fetch_add(1, std::memory_order_acq_rel) + 1 == run.size.parts) run.packed_parts.notify_all();
  }
  for (uint32_t packed; (packed = run.packed_parts.load(std::memory_order_acquire)) < run.size.parts;)
    wait_while(run.packed_parts, packed);
}

// Nobody may wait for what will not come.
void TaskRuns::give_up(Run& run) {
  run.state.store(Run::ready, std::memory_order_release);
  run.state.notify_all();
  run.packed_parts.store(run.size.parts, std::memory_order_release);
  run.packed_parts.notify_all();
}

void TaskRuns::draw(int64_t index, Run& run, int64_t next, const Compute& compute) {
  for (int64_t task; (task = run.next_task.fetch_add(1, std::memory_order_relaxed)) < run.size.tasks;) {
    if (failed_.load(std::memory_order_relaxed)) return;
    compute(index, task, run.packed == nullptr ? nullptr : static_cast<const char*>(run.packed->data()), next);
    if (run.ended_tasks.fetch_add(1, std::memory_order_acq_rel) + 1 == run.size.tasks) run.packed.reset();
  }
}

}  // namespace attune::cpu
