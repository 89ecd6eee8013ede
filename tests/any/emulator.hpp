// Runs plain GPU kernels on the CPU: every thread of a block is a fibre, and a fibre runs until it reaches a barrier.
// Slow and exact about synchronisation: a barrier that not every thread reaches is reported, not hung on.
//
// Stands in for what kernels/any/simt.cuh takes from NVRTC; include it before any .cuh.
#pragma once

#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/convert.hpp"
#include "jit/unit.hpp"
#include "kernels/common/types.cuh"

#define ATTUNE_DEVICE inline
#define ATTUNE_UNROLL
#define ATTUNE_ROLLED

namespace attune::emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index thread_index, block_index, block_size, grid_size;

class Block {
 public:
  // Runs `body` for every thread of every block of the grid, one block after the other. `shuffled` seeds the order in
  // which threads run between barriers, which must not matter.
  static void launch(jit::Dim3 grid, unsigned threads, size_t smem_bytes, unsigned shuffled,
                     const std::function<void()>& body) {
    grid_size = {grid.x, grid.y, grid.z};
    block_size = {threads, 1, 1};
    for (unsigned i = 0; i < grid.x; ++i) {
      block_index = {i, 0, 0};
      Block block(threads, smem_bytes, body);
      current_ = &block;
      block.run(shuffled + i);
      current_ = nullptr;
    }
  }

  static Block& current() { return *current_; }

  void* shared_memory() { return shared_.data(); }
  void block_barrier() { wait_at(block_barrier_); }
  bool block_or(bool value) {
    if (value) or_next_ = true;
    wait_at(block_barrier_);
    const bool result = or_next_;
    wait_at(block_barrier_);
    or_next_ = false;
    return result;
  }
  void warp_barrier() { wait_at(warp_barriers_[thread_index.x / 32]); }

  template <typename T>
  T shuffle_xor(T value, unsigned distance) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    // Two places in turn, so that one barrier is enough: who writes again has passed another one since.
    std::vector<uint64_t>& exchange = exchange_[warp_barriers_[thread_index.x / 32].generation % 2];
    std::memcpy(&exchange[thread_index.x], &value, sizeof value);
    warp_barrier();
    T other;
    std::memcpy(&other, &exchange[thread_index.x ^ distance], sizeof other);
    return other;
  }

 private:
  struct Barrier {
    unsigned expected = 0, arrived = 0;
    uint64_t generation = 0;
  };
  struct Fibre {
    std::unique_ptr<char[]> stack;
    ucontext_t point;  // where it goes on
    bool started = false, finished = false;
    Barrier* at = nullptr;
    uint64_t generation = 0;
  };

  struct Turn {
    unsigned warp, seed, taken;
  };

  Block(unsigned threads, size_t smem_bytes, const std::function<void()>& body)
      : body_(body), fibres_(threads), warp_barriers_((threads + 31) / 32) {
    exchange_.fill(std::vector<uint64_t>(threads));
    // Poisoned: nothing may rely on what is in shared memory at first.
    shared_.assign(smem_bytes / sizeof(double) + 1, std::numeric_limits<double>::quiet_NaN());
    block_barrier_.expected = threads;
    for (unsigned i = 0; i < threads; ++i) ++warp_barriers_[i / 32].expected;
  }

  // One warp after the other runs as far as it can: the most unlike lock-step that a GPU may do.
  void run(unsigned seed) {
    const unsigned warps = static_cast<unsigned>(warp_barriers_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (unsigned w = 0; w < warps; ++w)
        while (run_warp((w + seed) % warps, seed)) moved = true;
    }
    for (const Fibre& fibre : fibres_)
      if (!fibre.finished) throw std::runtime_error("threads wait at a barrier that others have passed by");
  }

  // Every thread of a warp up to its next barrier; false if none could move.
  bool run_warp(unsigned warp, unsigned seed) {
    turn_ = {warp, seed, 0};
    bool moved = false;
    while (ucontext_t* next = next_of_warp()) {
      moved = true;
      swapcontext(&scheduler_, next);
    }
    return moved;
  }

  // Where the next thread goes on whose turn it is and that can move, or null. Threads hand over to one another, and to
  // the scheduler only after the last: switching is nearly all that the emulator's time goes into.
  ucontext_t* next_of_warp() {
    while (turn_.taken < 32) {
      // An odd stride visits each of the 32 once.
      const unsigned index = turn_.warp * 32 + (turn_.taken++ * (2 * turn_.seed + 1) + turn_.seed) % 32;
      if (index >= fibres_.size()) continue;
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

  void leave(Barrier& barrier) {
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

  inline static Block* current_ = nullptr;

  const std::function<void()>& body_;
  std::vector<Fibre> fibres_;
  std::vector<double> shared_;
  Barrier block_barrier_;
  std::vector<Barrier> warp_barriers_;
  std::array<std::vector<uint64_t>, 2> exchange_;
  bool or_next_ = false;
  Fibre* running_ = nullptr;
  Turn turn_{};
  ucontext_t scheduler_;
};

}  // namespace attune::emulator

// The names that device code uses.
#define threadIdx ::attune::emulator::thread_index
#define blockIdx ::attune::emulator::block_index
#define blockDim ::attune::emulator::block_size
#define gridDim ::attune::emulator::grid_size

inline void __syncthreads() { attune::emulator::Block::current().block_barrier(); }
inline int __syncthreads_or(int value) { return attune::emulator::Block::current().block_or(value != 0); }
inline void __syncwarp() { attune::emulator::Block::current().warp_barrier(); }
template <typename T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  return attune::emulator::Block::current().shuffle_xor(value, static_cast<unsigned>(distance));
}

namespace attune::device {

using std::exp2, std::fma, std::fmax, std::fmin, std::tanh, std::fabs, std::exp, std::log;

inline void* shared_memory() { return emulator::Block::current().shared_memory(); }
inline float infinity() { return std::numeric_limits<float>::infinity(); }
inline float from_16_bits(Dtype dtype, uint16_t bits) {
  return dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}
inline uint16_t to_16_bits(Dtype dtype, float value) {
  return dtype == Dtype::bf16 ? float_to_bf16(value) : float_to_f16(value);
}

}  // namespace attune::device
