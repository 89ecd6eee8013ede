// Runs the rungs of the ladder on the CPU: every thread of a block is a fibre, which runs until it reaches a barrier.
// Stands in for what kernels/ladder/base.cuh takes from CUDA; include it before any rung.
//
// Slow, and hard on what a GPU may forgive: warps run one after the other as far as they can, in an order that the seed
// shuffles; an asynchronous copy happens as late as it may, or at once; shared memory begins as NaN, and who writes
// beyond what the launch asked for is found. A barrier that not all reach is reported, not hung on.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/convert.hpp"

namespace attune::ladder {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index thread_index, block_index, block_size, grid_size;

class Block {
 public:
  // Runs `body` for every thread of every block of the grid, one block after the other.
  static void launch(Index grid, unsigned threads, size_t shared_bytes, unsigned seed,
                     const std::function<void()>& body) {
    grid_size = grid;
    block_size = {threads, 1, 1};
    for (unsigned z = 0; z < grid.z; ++z)
      for (unsigned y = 0; y < grid.y; ++y)
        for (unsigned x = 0; x < grid.x; ++x) {
          block_index = {x, y, z};
          Block block(threads, shared_bytes, seed + x + y + z, body);
          current_ = &block;
          block.run();
          current_ = nullptr;
        }
  }

  static Block& current() { return *current_; }

  void* shared_memory() { return shared_.data(); }
  void block_barrier() { wait_at(block_barrier_); }
  void warp_barrier() { wait_at(warp_barriers_[thread_index.x / 32]); }

  // Barriers 1 to 15: a turn ends when `threads` have come by, those that wait and those that do not.
  void named_barrier(int id, int threads, bool wait) {
    Barrier& barrier = named_barriers_.at(static_cast<size_t>(id));
    barrier.expected = static_cast<unsigned>(threads);
    if (wait) return wait_at(barrier);
    ++barrier.arrived;
    release(barrier);
  }

  // What every lane of the warp gives, by lane. Valid until the lane's next barrier but one.
  template <typename T>
  std::array<T, 32> exchange(const T& mine) {
    static_assert(sizeof(T) <= slot_bytes);
    const unsigned warp = thread_index.x / 32;
    // Two places in turn, so that one barrier is enough: who writes again has passed another one since.
    std::vector<std::byte>& place = exchange_[warp_barriers_[warp].generation % 2];
    std::memcpy(&place[thread_index.x * slot_bytes], &mine, sizeof mine);
    warp_barrier();
    std::array<T, 32> all;
    for (unsigned lane = 0; lane < 32; ++lane)
      std::memcpy(&all[lane], &place[(warp * 32 + lane) * slot_bytes], sizeof(T));
    return all;
  }

  void copy_later(void* to, const void* from, bool read) {
    if (seed_ % 3 == 0)
      copy({to, read ? from : nullptr});
    else
      running_->copies.push_back({to, read ? from : nullptr});
  }
  void commit_copies() {
    running_->groups.push_back(std::move(running_->copies));
    running_->copies.clear();
  }
  void wait_for_copies(size_t pending) {
    for (; running_->groups.size() > pending; running_->groups.pop_front())
      for (const Copy& each : running_->groups.front()) copy(each);
  }

 private:
  static constexpr size_t slot_bytes = 64, zone_bytes = 4096;

  struct Barrier {
    unsigned expected = 0, arrived = 0;
    uint64_t generation = 0;
  };
  struct Copy {
    void* to;
    const void* from;  // nullptr: zeros
  };
  struct Fibre {
    std::unique_ptr<char[]> stack;
    ucontext_t point;  // where it goes on
    bool started = false, finished = false;
    Barrier* at = nullptr;
    uint64_t generation = 0;
    std::vector<Copy> copies;  // not committed yet
    std::deque<std::vector<Copy>> groups;
  };
  struct Turn {
    unsigned warp, taken;
  };

  Block(unsigned threads, size_t shared_bytes, unsigned seed, const std::function<void()>& body)
      : body_(body),
        seed_(seed),
        shared_bytes_(shared_bytes),
        fibres_(threads),
        shared_((shared_bytes + zone_bytes) / sizeof(Line) + 1),
        warp_barriers_((threads + 31) / 32) {
    if (threads % 32 != 0) throw std::runtime_error("a warp is not full");
    exchange_.fill(std::vector<std::byte>(threads * slot_bytes));
    std::memset(shared_.data(), 0xff, shared_.size() * sizeof(Line));  // NaN, in every format
    block_barrier_.expected = threads;
    for (Barrier& barrier : warp_barriers_) barrier.expected = 32;
  }

  static void copy(const Copy& what) {
    if (what.from == nullptr)
      std::memset(what.to, 0, 16);
    else
      std::memcpy(what.to, what.from, 16);
  }

  void run() {
    const unsigned warps = static_cast<unsigned>(warp_barriers_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (unsigned w = 0; w < warps; ++w)
        while (run_warp((w * (seed_ % 2 == 0 ? 1 : warps - 1) + seed_) % warps)) moved = true;
    }
    for (const Fibre& fibre : fibres_)
      if (!fibre.finished) throw std::runtime_error("threads wait at a barrier that others have passed by");
    const auto* bytes = reinterpret_cast<const unsigned char*>(shared_.data());
    if (std::any_of(bytes + shared_bytes_, bytes + shared_.size() * sizeof(Line),
                    [](unsigned char byte) { return byte != 0xff; }))
      throw std::runtime_error("more shared memory is written than the launch asks for");
  }

  // Every thread of a warp up to its next barrier; false if none could move.
  bool run_warp(unsigned warp) {
    turn_ = {warp, 0};
    bool moved = false;
    while (ucontext_t* next = next_of_warp()) {
      moved = true;
      swapcontext(&scheduler_, next);
    }
    return moved;
  }

  // Where the next thread goes on whose turn it is and that can move, or null. Threads hand over to one another, and to
  // the scheduler only after the last: switching is most of what the emulator's time goes into.
  ucontext_t* next_of_warp() {
    while (turn_.taken < 32) {
      // An odd stride visits each of the 32 once.
      const unsigned index = turn_.warp * 32 + (turn_.taken++ * (2 * seed_ + 1) + seed_) % 32;
      Fibre& fibre = fibres_[index];
      if (fibre.finished || (fibre.at != nullptr && fibre.at->generation == fibre.generation)) continue;
      thread_index = {index, 0, 0};
      running_ = &fibre;
      if (!fibre.started) start(fibre);
      return &fibre.point;
    }
    return nullptr;
  }

  void start(Fibre& fibre) {
    constexpr size_t stack_bytes = 256 << 10;
    fibre.started = true;
    fibre.stack = std::make_unique_for_overwrite<char[]>(stack_bytes);
    getcontext(&fibre.point);
    fibre.point.uc_stack.ss_sp = fibre.stack.get();
    fibre.point.uc_stack.ss_size = stack_bytes;
    fibre.point.uc_link = &scheduler_;
    makecontext(&fibre.point, &Block::enter, 0);
  }

  static void enter() {
    Block& block = *current_;
    block.body_();
    block.running_->finished = true;
    block.leave(block.block_barrier_);
    block.leave(block.warp_barriers_[thread_index.x / 32]);
  }

  static void leave(Barrier& barrier) {
    --barrier.expected;
    release(barrier);
  }
  static void release(Barrier& barrier) {
    if (barrier.arrived == 0 || barrier.arrived < barrier.expected) return;
    barrier.arrived = 0;
    ++barrier.generation;
  }

  void wait_at(Barrier& barrier) {
    Fibre* self = running_;
    self->at = &barrier;
    self->generation = barrier.generation;
    ++barrier.arrived;
    release(barrier);
    ucontext_t* next = next_of_warp();
    swapcontext(&self->point, next == nullptr ? &scheduler_ : next);
    self->at = nullptr;
  }

  struct alignas(128) Line {
    std::byte bytes[128];
  };

  inline static Block* current_ = nullptr;

  const std::function<void()>& body_;
  unsigned seed_;
  size_t shared_bytes_;
  std::vector<Fibre> fibres_;
  std::vector<Line> shared_;
  Barrier block_barrier_;
  std::vector<Barrier> warp_barriers_;
  std::array<Barrier, 16> named_barriers_;
  std::array<std::vector<std::byte>, 2> exchange_;
  Fibre* running_ = nullptr;
  Turn turn_{};
  ucontext_t scheduler_;
};

}  // namespace attune::ladder
