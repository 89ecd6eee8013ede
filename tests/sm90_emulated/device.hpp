// What device code takes from the language and NVRTC, for g++. Include it, or harness.hpp, before any kernel; the
// folder instructions/ must come first on the include path.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "kernels/common/divisor.cuh"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

#define __CUDACC_RTC__
#define ATTUNE_DEVICE inline
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __restrict__ __restrict

// `extern __shared__ uint8_t dynamic_shared[];`, the way kernels get at shared memory: the name becomes a pointer, and
// what is left of the declaration is never run.
#define __shared__                                                                                 \
  int attune_nothing [[maybe_unused]];                                                             \
  auto* const dynamic_shared = static_cast<uint8_t*>(::attune::emulator::dynamic_shared_memory()); \
  if (false) extern __attribute__((unused))

#define threadIdx ::attune::emulator::thread_index
#define blockIdx ::attune::emulator::block_index
#define blockDim ::attune::emulator::block_size
#define gridDim ::attune::emulator::grid_size

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); }
inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<uint32_t>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<uint32_t>(x)); }
inline float __fdividef(float a, float b) { return a / b; }
template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
[[noreturn]] inline void __trap() { attune::emulator::fail("traps"); }

inline void __syncthreads() { attune::emulator::block_barrier(); }
inline int __syncthreads_or(int value) { return attune::emulator::block_or(value != 0); }
inline void __syncwarp(uint32_t mask = 0xffffffffu) { attune::emulator::warp_barrier(mask); }
inline long long clock64() { return attune::emulator::clock(); }

// What other threads do meanwhile is done in between.
template <typename T, typename Change>
T attune_atomic(T* address, Change change) {
  attune::emulator::maybe_pause();
  const T old = *address;
  *address = change(old);
  return old;
}
template <typename T>
T atomicAdd(T* address, std::type_identity_t<T> x) {
  return attune_atomic(address, [x](T old) { return old + x; });
}
template <typename T>
T atomicMax(T* address, std::type_identity_t<T> x) {
  return attune_atomic(address, [x](T old) { return std::max(old, x); });
}
template <typename T>
T atomicExch(T* address, std::type_identity_t<T> x) {
  return attune_atomic(address, [x](T) { return x; });
}
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> x) {
  return attune_atomic(address, [=](T old) { return old == expected ? x : old; });
}

inline void __threadfence() {}
inline void __threadfence_block() {}

namespace attune::emulator {

// What every lane brings to a shuffle, and what it gets.
template <typename T>
struct Shuffled {
  T value, result;
  int source;  // the lane
};
template <typename T>
T shuffle(const char* instruction, uint32_t mask, T value, unsigned source) {
  Shuffled<T> mine{value, value, static_cast<int>(source % 32)};
  warp_collective(instruction, mask, &mine, [](void* const(&lanes)[32]) {
    for (void* lane : lanes) {
      if (lane == nullptr) continue;
      auto* const to = static_cast<Shuffled<T>*>(lane);
      const auto* const from = static_cast<const Shuffled<T>*>(lanes[to->source]);
      if (from == nullptr) fail("shuffles from a lane that does not take part");
      to->result = from->value;
    }
  });
  return mine.result;
}

struct Vote {
  bool value;
  uint32_t ballot;
};
inline uint32_t ballot(const char* instruction, uint32_t mask, bool value) {
  Vote mine{value, 0};
  warp_collective(instruction, mask, &mine, [](void* const(&lanes)[32]) {
    uint32_t all = 0;
    for (int i = 0; i < 32; ++i)
      if (lanes[i] != nullptr && static_cast<const Vote*>(lanes[i])->value) all |= 1u << i;
    for (void* lane : lanes)
      if (lane != nullptr) static_cast<Vote*>(lane)->ballot = all;
  });
  return mine.ballot;
}

}  // namespace attune::emulator

template <typename T>
T __shfl_sync(uint32_t mask, T value, int lane) {
  return attune::emulator::shuffle("shfl.sync.idx", mask, value, static_cast<unsigned>(lane));
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int distance) {
  return attune::emulator::shuffle("shfl.sync.bfly", mask, value, (threadIdx.x % 32) ^ static_cast<unsigned>(distance));
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return attune::emulator::shuffle("shfl.sync.up", mask, value, lane < distance ? lane : lane - distance);
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return attune::emulator::shuffle("shfl.sync.down", mask, value, lane + distance > 31 ? lane : lane + distance);
}
inline uint32_t __ballot_sync(uint32_t mask, int value) {
  return attune::emulator::ballot("vote.sync", mask, value != 0);
}
inline int __any_sync(uint32_t mask, int value) { return __ballot_sync(mask, value) != 0; }
inline int __all_sync(uint32_t mask, int value) { return __ballot_sync(mask, value) == mask; }
