// Probe: what the tensor cores do at most. Two warpgroups per CTA and one CTA per SM multiply the same random tiles
// from shared memory over and over, m64n256k16 in bf16, one group of products always in flight.
#pragma once

#include "kernels/common/wgmma.cuh"

namespace attune::device::probe_matmul {

struct Variant {};
struct Config {};

struct Params {
  float* out;  // one per thread: keeps the products from being removed
  int32_t rounds;
  uint32_t seed;
};

constexpr int warpgroups = 2;
constexpr int rows = 64, columns = 256, depth = 64;  // one panel of A and one of B
constexpr int shared_bytes = (rows + columns) * depth * 2;
constexpr double flops_per_round = 2.0 * warpgroups * rows * columns * depth;

#ifdef __CUDACC_RTC__

// Two bf16 of random sign and fraction between 1/2 and 2: never zeros, which draw less power.
ATTUNE_DEVICE uint32_t random_pair(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return (x & 0x80ff80ffu) | 0x3f003f00u;
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint32_t shared[];
  for (int i = threadIdx.x; i < shared_bytes / 4; i += blockDim.x)
    shared[i] = random_pair(params.seed + blockIdx.x * 65536 + i);
  fence_async_shared();
  __syncthreads();

  const uint32_t a = shared_address(shared), b = a + rows * depth * 2;
  float d[columns / 2];
#pragma unroll
  for (int i = 0; i < columns / 2; ++i) d[i] = 0;
  pin(d);
  wgmma_fence();
  int rounds = params.rounds;
  do {
#pragma unroll
    for (int step = 0; step < depth / 16; ++step)
      Wgmma<columns>::ss<Dtype::bf16, Major::k>(d, k_major_descriptor(a + step * 32), k_major_descriptor(b + step * 32),
                                                1);
    wgmma_commit();
    wgmma_wait<1>();
  } while (--rounds > 0);
  wgmma_wait<0>();
  pin(d);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < columns / 2; ++i) sum += d[i];
  params.out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#endif

}  // namespace attune::device::probe_matmul
