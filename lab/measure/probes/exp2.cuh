// Probe: how many base-2 exponentials an SM gives per clock. Eight independent chains per thread, full occupancy.
#pragma once

#include "kernels/common/registers.cuh"

namespace attune::device::probe_exp2 {

struct Variant {};
struct Config {};

struct Params {
  float* out;
  int32_t rounds;
  float start;
};

constexpr int threads = 512;
constexpr int blocks_per_sm = 4;
constexpr int chains = 8;

#ifdef __CUDACC_RTC__

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  float x[chains];
#pragma unroll
  for (int i = 0; i < chains; ++i) x[i] = params.start + static_cast<float>(threadIdx.x) * 0.001f + i * 0.1f;
#pragma unroll 4
  for (int round = 0; round < params.rounds; ++round) {
#pragma unroll
    for (int i = 0; i < chains; ++i) x[i] = exp2_approx(-x[i]);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < chains; ++i) sum += x[i];
  if (sum == -1) *params.out = sum;  // never: powers of two are positive
}

#endif

}  // namespace attune::device::probe_exp2
