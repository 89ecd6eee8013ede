// Test kernels of the barriers inside a CTA, of register reallocation, and of programmatic launch; and a planted race.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/registers.cuh"

namespace attune::device::test_sync {

enum class Operation : int32_t {
  phases,
  ring,
  turns,
  endless_wait,
  registers,
  dependency_first,
  dependency_second,
  unordered_exchange
};

struct Variant {};
struct Config {};

constexpr int threads = 384;
constexpr int ring_items = 100;
constexpr int turns_each = 8;
constexpr int held_values = 200;  // per thread: more than the 168 registers of the launch
constexpr int dependency_words = 4096;

struct Params {
  Operation operation;
  const int32_t* in;
  int32_t* out;
  int32_t* started;  // written by the second kernel of a dependency, read by the first
};

#ifdef __CUDACC_RTC__

constexpr int slots = 3;

struct SharedStorage {
  Mbarrier full[slots], free[slots], barrier;
  int item[slots];
  int turn;
  int exchanged[threads];
};

// What test() says of parities 0 and 1 at each stage of two phases of two arrivals.
ATTUNE_DEVICE void phases(const Params& params, SharedStorage& shared) {
  if (threadIdx.x != 0) return;
  shared.barrier.init(2);
  int* out = params.out;
  for (int arrivals = 0; arrivals <= 4; ++arrivals) {
    if (arrivals > 0) shared.barrier.arrive();
    *out++ = shared.barrier.test(0);
    *out++ = shared.barrier.test(1);
  }
}

// One lane of a warpgroup hands numbers to another through a ring of slots.
ATTUNE_DEVICE void ring(const Params& params, SharedStorage& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < slots; ++i) shared.full[i].init(1), shared.free[i].init(1);
    fence_mbarrier_init();
  }
  __syncthreads();
  Ring<slots> ring;
  if (threadIdx.x == 0) {
    for (int i = 0; i < ring_items; ++i, ring.advance()) {
      shared.free[ring.slot].wait(ring.parity ^ 1, "free");
      shared.item[ring.slot] = params.in[i];
      shared.full[ring.slot].arrive();
    }
  } else if (threadIdx.x == 128) {
    for (int i = 0; i < ring_items; ++i, ring.advance()) {
      shared.full[ring.slot].wait(ring.parity, "full");
      params.out[i] = shared.item[ring.slot];
      shared.free[ring.slot].arrive();
    }
  }
}

// Three warpgroups write their number one after the other.
ATTUNE_DEVICE void turns(const Params& params, SharedStorage& shared) {
  const int warpgroup = threadIdx.x / 128;
  if (threadIdx.x == 0) shared.turn = 0;
  __syncthreads();
  if (warpgroup == 2) barrier_arrive(1, 256);
  for (int i = 0; i < turns_each; ++i) {
    barrier_sync(1 + warpgroup, 256);
    if (threadIdx.x % 128 == 0) params.out[shared.turn++] = warpgroup;
    barrier_arrive(1 + (warpgroup + 1) % 3, 256);
  }
}

// Two warpgroups take registers from the third, and hold more values than they could before.
ATTUNE_DEVICE void registers(const Params& params) {
  const int warpgroup = threadIdx.x / 128;
  if (warpgroup == 0) {
    give_registers<24>();
    return;
  }
  take_registers<240>();
  int x[held_values];
  const int* in = params.in + (threadIdx.x - 128) * held_values;
#pragma unroll
  for (int i = 0; i < held_values; ++i) x[i] = in[i];
#pragma unroll
  for (int round = 0; round < 2; ++round) {
#pragma unroll
    for (int i = 0; i < held_values; ++i) asm volatile("" : "+r"(x[i]));
#pragma unroll
    for (int i = 0; i < held_values; ++i) x[i] = 3 * x[i] + x[(i + 7) % held_values];
  }
#pragma unroll
  for (int i = 0; i < held_values; ++i) params.out[(threadIdx.x - 128) * held_values + i] = x[i];
}

// A producer with few registers finds out that nobody will ever arrive.
ATTUNE_DEVICE void endless_wait(SharedStorage& shared) {
  if (threadIdx.x == 0) {
    shared.barrier.init(1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 5) shared.barrier.wait(0, "never_full");
  } else {
    take_registers<240>();
  }
}

// The first lets the second start, waits until it has (within 0.1 s), and only then writes what the second reads.
ATTUNE_DEVICE void dependency_first(const Params& params) {
  grid_dependency_launch();
  const auto* started = static_cast<const volatile int*>(params.started);
  const long long begin = clock64();
  while (*started == 0 && clock64() - begin < 200'000'000ll) {
  }
  if (threadIdx.x == 0) params.out[dependency_words] = *started;
  for (int i = threadIdx.x; i < dependency_words; i += blockDim.x) params.out[i] = params.in[i];
}
ATTUNE_DEVICE void dependency_second(const Params& params) {
  if (threadIdx.x == 0) *static_cast<volatile int*>(params.started) = 1;
  grid_dependency_wait();
  for (int i = threadIdx.x; i < dependency_words; i += blockDim.x) params.out[i] = params.in[i];
}

// A mistake: every warp reads what the next one writes, with no barrier in between.
ATTUNE_DEVICE void unordered_exchange(const Params& params, SharedStorage& shared) {
  shared.exchanged[threadIdx.x] = -1;
  __syncthreads();
  shared.exchanged[threadIdx.x] = params.in[threadIdx.x];
  params.out[threadIdx.x] = shared.exchanged[(threadIdx.x + 32) % threads];
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  __shared__ SharedStorage shared;
  switch (params.operation) {
    case Operation::phases:
      return phases(params, shared);
    case Operation::ring:
      return ring(params, shared);
    case Operation::turns:
      return turns(params, shared);
    case Operation::endless_wait:
      return endless_wait(shared);
    case Operation::registers:
      return registers(params);
    case Operation::dependency_first:
      return dependency_first(params);
    case Operation::dependency_second:
      return dependency_second(params);
    case Operation::unordered_exchange:
      return unordered_exchange(params, shared);
  }
}

#endif

}  // namespace attune::device::test_sync
