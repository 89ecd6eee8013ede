// The order of work where tasks belong together: those of a KV head, which share its packed keys, or those that read
// neighbouring memory one after the other. Whoever comes to a run of such tasks first packs its keys, those who come
// meanwhile help, and all then draw its tasks. Every thread begins elsewhere: as long as there are runs enough each has
// one for itself, whose keys stay in its caches and in memory that it has just used.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cpu/threads.hpp"

namespace attune::cpu {

class TaskRuns {
 public:
  // Of one run: how many bytes its packed keys take, in how many parts they are packed, how many tasks use them.
  struct Size {
    size_t bytes = 0;
    uint32_t parts = 0;
    int64_t tasks = 0;
  };
  using SizeOf = std::function<Size(int64_t run)>;
  using Pack = std::function<void(int64_t run, int64_t part, char* packed)>;
  // packed: NULL if there are none; next: the run this worker is likely to begin next, or -1
  using Compute = std::function<void(int64_t run, int64_t task, const char* packed, int64_t next)>;

  TaskRuns(Threads& threads, int64_t runs, const SizeOf& size_of, Pack pack);

  // All work that is left, beginning with the runs that fall to worker `index` of `workers`. Returns when none is left
  // to draw: other workers may still be at theirs. What it throws ends the other workers too.
  void work(int64_t index, int64_t workers, const Compute& compute);

 private:
  struct Run {
    static constexpr uint32_t untouched = 0, claimed = 1, ready = 2;
    Size size;
    std::atomic<uint32_t> state{untouched};    // ready: its memory is there
    std::unique_ptr<Threads::Scratch> packed;  // until the last task has ended
    std::atomic<uint32_t> next_part{0}, packed_parts{0};
    std::atomic<int64_t> next_task{0}, ended_tasks{0};
  };

  void pack(int64_t index, Run& run);
  static void give_up(Run& run);
  void draw(int64_t index, Run& run, int64_t next, const Compute& compute);

  Threads& threads_;
  Pack pack_;
  std::vector<Run> runs_;
  std::atomic<bool> failed_{false};
};

}  // namespace attune::cpu
