// Probe: how fast a buffer is read. Plain loads of 16 bytes that leave the L1 alone, four in flight per thread; a
// buffer larger than the L2 shows the memory, one that fits into it and is read several times the L2.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device::probe_read {

struct Variant {};
struct Config {};

struct Params {
  const uint32_t* data;
  uint32_t* out;
  int64_t chunks;  // of 16 bytes; a multiple of the chunks of one step of the whole grid
  int32_t passes;
};

constexpr int threads = 512;
constexpr int blocks_per_sm = 4;
constexpr int loads_in_flight = 4;

#ifdef __CUDACC_RTC__

ATTUNE_DEVICE uint32_t load_and_mix(const uint32_t* address) {
  uint32_t x, y, z, w;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
               : "l"(address));
  return x ^ y ^ z ^ w;
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t mixed = 0;
  for (int pass = 0; pass < params.passes; ++pass)
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < params.chunks;
         i += step * loads_in_flight) {
      uint32_t part[loads_in_flight];
#pragma unroll
      for (int j = 0; j < loads_in_flight; ++j) part[j] = load_and_mix(params.data + (i + j * step) * 4);
#pragma unroll
      for (int j = 0; j < loads_in_flight; ++j) mixed ^= part[j];
    }
  if (mixed == 0x9e3779b9u) *params.out = mixed;  // hardly ever: the loads must not look useless
}

#endif

}  // namespace attune::device::probe_read
