#include "cpu/head_runs.hpp"

namespace attune::cpu {

HeadRuns::HeadRuns(Threads& threads, int64_t heads, const Work& work)
    : threads_(threads), work_(work), heads_(static_cast<size_t>(heads)) {
  for (int64_t i = 0; i < heads; ++i) heads_[static_cast<size_t>(i)].size = work.size(i);
}

void HeadRuns::work(int64_t index, int64_t workers) {
  const auto count = static_cast<int64_t>(heads_.size());
  const int64_t first = count * index / workers;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = (first + i) % count;
    Head& head = heads_[static_cast<size_t>(at)];
    if (head.next_task.load(std::memory_order_relaxed) >= head.size.tasks) continue;
    try {
      pack(at, head);
      if (failed_.load(std::memory_order_relaxed)) return;
      const int64_t after = (at + 1) % count;
      const bool is_free = heads_[static_cast<size_t>(after)].state.load(std::memory_order_relaxed) == Head::untouched;
      compute(at, head, is_free ? after : -1);
    } catch (...) {
      failed_.store(true, std::memory_order_relaxed);
      give_up(head);
      throw;
    }
  }
}

// Returns when all keys of the head are packed.
void HeadRuns::pack(int64_t index, Head& head) {
  uint32_t state = Head::untouched;
  if (head.state.compare_exchange_strong(state, Head::claimed, std::memory_order_acquire)) {
    head.memory = std::make_unique<Memory>(threads_, head.size.bytes);
    head.state.store(Head::ready, std::memory_order_release);
    head.state.notify_all();
  }
  while ((state = head.state.load(std::memory_order_acquire)) != Head::ready) wait_while(head.state, state);
  for (uint32_t part; (part = head.next_part.fetch_add(1, std::memory_order_relaxed)) < head.size.parts;) {
    if (failed_.load(std::memory_order_relaxed)) return give_up(head);
    work_.pack(index, part, head.memory->data());
    if (head.packed_parts.fetch_add(1, std::memory_order_acq_rel) + 1 == head.size.parts)
      head.packed_parts.notify_all();
  }
  for (uint32_t packed; (packed = head.packed_parts.load(std::memory_order_acquire)) < head.size.parts;)
    wait_while(head.packed_parts, packed);
}

// Nobody may wait for what will not come.
void HeadRuns::give_up(Head& head) {
  head.state.store(Head::ready, std::memory_order_release);
  head.state.notify_all();
  head.packed_parts.store(head.size.parts, std::memory_order_release);
  head.packed_parts.notify_all();
}

void HeadRuns::compute(int64_t index, Head& head, int64_t next) {
  for (int64_t task; (task = head.next_task.fetch_add(1, std::memory_order_relaxed)) < head.size.tasks;) {
    if (failed_.load(std::memory_order_relaxed)) return;
    work_.compute(index, task, head.memory->data(), next);
    if (head.ended_tasks.fetch_add(1, std::memory_order_acq_rel) + 1 == head.size.tasks) head.memory.reset();
  }
}

}  // namespace attune::cpu
