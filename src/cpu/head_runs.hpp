// The order of work where the tasks of a head share packed keys. Whoever comes to a head first packs its keys, those
// who come meanwhile help, and all then draw its tasks. Every thread begins elsewhere: as long as there are heads
// enough each has one for itself, whose keys stay in its caches and in memory that it has just used.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cpu/threads.hpp"

namespace attune::cpu {

class HeadRuns {
 public:
  // Of one head: how many bytes its packed keys take, in how many parts they are packed, how many tasks use them.
  struct Size {
    size_t bytes = 0;
    uint32_t parts = 0;
    int64_t tasks = 0;
  };
  struct Work {
    std::function<Size(int64_t head)> size;
    std::function<void(int64_t head, int64_t part, char* packed)> pack;
    // next: the head this worker is likely to pack next, or -1
    std::function<void(int64_t head, int64_t task, const char* packed, int64_t next)> compute;
  };

  HeadRuns(Threads& threads, int64_t heads, const Work& work);

  // All work that is left, beginning with the heads that fall to worker `index` of `workers`. Returns when none is left
  // to draw: other workers may still be at theirs. What it throws ends the other workers too.
  void work(int64_t index, int64_t workers);

 private:
  class Memory {
   public:
    Memory(Threads& threads, size_t bytes) : scratch_(threads.scratch(bytes)) {}
    char* data() const { return static_cast<char*>(scratch_.data()); }

   private:
    Threads::Scratch scratch_;
  };
  struct Head {
    static constexpr uint32_t untouched = 0, claimed = 1, ready = 2;
    Size size;
    std::atomic<uint32_t> state{untouched};  // ready: its memory is there
    std::unique_ptr<Memory> memory;          // until the last task has ended
    std::atomic<uint32_t> next_part{0}, packed_parts{0};
    std::atomic<int64_t> next_task{0}, ended_tasks{0};
  };

  void pack(int64_t index, Head& head);
  static void give_up(Head& head);
  void compute(int64_t index, Head& head, int64_t next);

  Threads& threads_;
  const Work& work_;
  std::vector<Head> heads_;
  std::atomic<bool> failed_{false};
};

}  // namespace attune::cpu
