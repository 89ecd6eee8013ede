// Runs plain GPU kernels on the CPU: every thread of a block is a fibre, and a fibre runs until it reaches a barrier.
// Slow and exact about synchronisation: a barrier that not every thread reaches is reported, not hung on.
//
// Stands in for what kernels/any/simt.cuh takes from NVRTC; include it before any .cuh.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
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

  // What each lane of the warp gave, by lane. All of them must come here; it holds until this thread's next exchange.
  template <typename T>
  std::array<T, 32> exchange(const T& value) {
    static_assert(sizeof(T) <= sizeof(Parcel));
    // Two places in turn, so that one barrier is enough: who writes again has passed another one since.
    std::vector<Parcel>& parcels = exchange_[warp_barriers_[thread_index.x / 32].generation % 2];
    std::memcpy(&parcels[thread_index.x], &value, sizeof value);
    warp_barrier();
    std::array<T, 32> all{};
    const unsigned first = thread_index.x / 32 * 32;
    for (unsigned lane = 0; lane < 32 && first + lane < parcels.size(); ++lane)
      std::memcpy(&all[lane], &parcels[first + lane], sizeof(T));
    return all;
  }

  // A copy that is under way until it is waited for: its destination is poison meanwhile.
  void copy_later(void* destination, const void* source, int bytes) {
    constexpr size_t copied = 16;
    if (reinterpret_cast<uintptr_t>(destination) % copied != 0 || reinterpret_cast<uintptr_t>(source) % copied != 0)
      throw std::runtime_error("cp.async of an address that is no multiple of 16");
    std::memset(destination, 0xff, copied);
    running_->copies.push_back({destination, source, static_cast<size_t>(bytes), running_->committed});
  }
  void commit_copies() { ++running_->committed; }
  void wait_for_copies(unsigned pending) {
    std::erase_if(running_->copies, [&](const Copy& copy) {
      if (copy.group + pending >= running_->committed) return false;
      std::memset(copy.destination, 0, 16);
      std::memcpy(copy.destination, copy.source, copy.bytes);
      return true;
    });
  }

 private:
  struct Barrier {
    unsigned expected = 0, arrived = 0;
    uint64_t generation = 0;
  };
  struct alignas(8) Parcel {
    std::array<std::byte, 24> bytes;
  };
  struct Copy {
    void* destination;
    const void* source;
    size_t bytes;
    unsigned group;
  };
  struct Fibre {
    std::unique_ptr<char[]> stack;
    ucontext_t point;  // where it goes on
    bool started = false, finished = false;
    Barrier* at = nullptr;
    uint64_t generation = 0;
    std::vector<Copy> copies;  // under way
    unsigned committed = 0;    // groups of copies
  };

  struct Turn {
    unsigned warp, seed, taken;
  };

  Block(unsigned threads, size_t smem_bytes, const std::function<void()>& body)
      : body_(body), fibres_(threads), warp_barriers_((threads + 31) / 32) {
    exchange_.fill(std::vector<Parcel>(threads));
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
    if (failure_) std::rethrow_exception(failure_);
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
    try {
      block.body_();
    } catch (...) {  // nothing above this fibre's stack could catch it
      block.failure_ = std::current_exception();
    }
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
  std::array<std::vector<Parcel>, 2> exchange_;
  bool or_next_ = false;
  std::exception_ptr failure_;
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
  return attune::emulator::Block::current().exchange(value)[threadIdx.x % 32 ^ static_cast<unsigned>(distance)];
}
template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return attune::emulator::Block::current().exchange(value)[static_cast<unsigned>(lane)];
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

// What kernels/common/registers.cuh and cp_async.cuh have as PTX.
template <Dtype dtype>
uint32_t pack(float low, float high) {
  return to_16_bits(dtype, low) | static_cast<uint32_t>(to_16_bits(dtype, high)) << 16;
}

inline std::array<uint32_t, 4> load_matrices(const void* row, bool transposed) {
  const auto rows = emulator::Block::current().exchange(static_cast<const uint16_t*>(row));
  const unsigned lane = threadIdx.x % 32;
  std::array<uint32_t, 4> x{};
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned long_way = lane % 4 * 2 + e, short_way = lane / 4;
      const uint16_t value =
          transposed ? rows[matrix * 8 + long_way][short_way] : rows[matrix * 8 + short_way][long_way];
      x[matrix] |= static_cast<uint32_t>(value) << (16 * e);
    }
  return x;
}
inline void ldmatrix_x4(uint32_t (&x)[4], const void* row) { std::ranges::copy(load_matrices(row, false), x); }
inline void ldmatrix_x4_trans(uint32_t (&x)[4], const void* row) { std::ranges::copy(load_matrices(row, true), x); }

// Towards 0, as tensor cores drop what does not fit.
inline float truncated(double x) {
  const auto nearest = static_cast<float>(x);
  if (!std::isfinite(x) || std::abs(static_cast<double>(nearest)) <= std::abs(x)) return nearest;
  return std::nextafter(nearest, 0.0f);
}

template <Dtype dtype>
void mma_16x8x16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Operands {
    uint32_t a[4], b[2];
  };
  const auto all = emulator::Block::current().exchange(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const auto half = [](uint32_t pair, unsigned e) {
    return static_cast<double>(from_16_bits(dtype, static_cast<uint16_t>(pair >> (16 * e))));
  };
  const unsigned lane = threadIdx.x % 32;
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + e % 2;
    double sum = d[e];
    for (unsigned k = 0; k < 16; ++k) {
      const Operands& of_row = all[row * 4 + k % 8 / 2];
      const Operands& of_column = all[column * 4 + k % 8 / 2];
      sum += half(of_row.a[k / 8 * 2 + e / 2], k % 2) * half(of_column.b[k / 8], k % 2);
    }
    d[e] = truncated(sum);
  }
}

inline void cp_async_16(void* destination, const void* source, int bytes = 16) {
  emulator::Block::current().copy_later(destination, source, bytes);
}
inline void cp_async_commit() { emulator::Block::current().commit_copies(); }
template <int pending>
void cp_async_wait() {
  emulator::Block::current().wait_for_copies(pending);
}

}  // namespace attune::device
