// Test kernel: D(64 x n) = A(64 x depth) B(depth x n) by every form of wgmma for one n. One warpgroup.
#pragma once

#include "kernels/common/tile_layout.cuh"
#include "kernels/common/wgmma.cuh"

namespace attune::device::test_wgmma {

constexpr int depth = 128;
constexpr int rows = 64;

struct Variant {
  int n = 64;
  Major a_major = Major::k;  // of A in shared memory
};
struct Config {};

struct Params {
  const uint32_t* a_image;  // what shared memory is to hold, byte for byte
  const uint32_t* b_image;
  const uint16_t* a_rows;  // A row by row, for A in registers
  float* d;                // in and out: what is accumulated on, then the product
  int32_t a_bytes, b_bytes;
  TileLayout a_layout, b_layout;
  Dtype dtype;
  Major b_major;
  int32_t a_in_registers;
  int32_t accumulate;  // from the first step on
};

constexpr int shared_alignment = 1024;
// B by rows fills whole panels.
ATTUNE_SHARED_CODE int shared_bytes(int n) { return (rows + round_up(n, 64)) * depth * 2; }

#ifdef __CUDACC_RTC__

// Each form is a whole pipeline of its own, from fence to wait; they share the accumulators.
template <int n, Dtype dtype, Major a_major, Major b_major>
ATTUNE_DEVICE void multiply_ss(const Params& params, float (&d)[n / 2], uint32_t a, uint32_t b) {
  wgmma_fence();
#pragma unroll 1
  for (int step = 0; step < depth / 16; ++step)
    Wgmma<n>::template ss<dtype, b_major, a_major>(
        d, params.a_layout.descriptor(a + params.a_layout.step_bytes(step, a_major), a_major),
        params.b_layout.descriptor(b + params.b_layout.step_bytes(step, b_major), b_major),
        step != 0 || params.accumulate);
  wgmma_commit();
  wgmma_wait<0>();
}

template <int n, Dtype dtype, Major b_major>
ATTUNE_DEVICE void multiply_rs(const Params& params, float (&d)[n / 2], uint32_t b) {
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll 1
  for (int step = 0; step < depth / 16; ++step) {
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = *reinterpret_cast<const uint32_t*>(params.a_rows + (row + i % 2 * 8) * depth + step * 16 + column +
                                                i / 2 * 8);
    wgmma_fence();
    Wgmma<n>::template rs<dtype, b_major>(
        d, a, params.b_layout.descriptor(b + params.b_layout.step_bytes(step, b_major), b_major),
        step != 0 || params.accumulate);
    wgmma_commit();
    wgmma_wait<0>();
  }
}

template <Variant variant, Dtype dtype, Major b_major>
ATTUNE_DEVICE void multiply(const Params& params, float (&d)[variant.n / 2], uint32_t a, uint32_t b) {
  if (variant.a_major == Major::k && params.a_in_registers)
    multiply_rs<variant.n, dtype, b_major>(params, d, b);
  else
    multiply_ss<variant.n, dtype, variant.a_major, b_major>(params, d, a, b);
}

template <Variant variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint32_t shared[];
  uint32_t* const b_shared = shared + params.a_bytes / 4;
  for (int i = threadIdx.x; i < params.a_bytes / 4; i += blockDim.x) shared[i] = params.a_image[i];
  for (int i = threadIdx.x; i < params.b_bytes / 4; i += blockDim.x) b_shared[i] = params.b_image[i];
  fence_async_shared();
  __syncthreads();

  const uint32_t a = shared_address(shared), b = shared_address(b_shared);
  if (a % shared_alignment != 0) __trap();

  constexpr int n = variant.n;
  const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  float* const corner = params.d + (16 * warp + group) * n + 2 * quad;
  float d[n / 2];
#pragma unroll
  for (int i = 0; i < n / 2; ++i) d[i] = corner[i / 2 % 2 * 8 * n + i / 4 * 8 + i % 2];
  pin(d);
  if (params.dtype == Dtype::f16) {
    if (params.b_major == Major::k)
      multiply<variant, Dtype::f16, Major::k>(params, d, a, b);
    else
      multiply<variant, Dtype::f16, Major::mn>(params, d, a, b);
  } else {
    if (params.b_major == Major::k)
      multiply<variant, Dtype::bf16, Major::k>(params, d, a, b);
    else
      multiply<variant, Dtype::bf16, Major::mn>(params, d, a, b);
  }
  pin(d);
#pragma unroll
  for (int i = 0; i < n / 2; ++i) corner[i / 2 % 2 * 8 * n + i / 4 * 8 + i % 2] = d[i];
}

#endif

}  // namespace attune::device::test_wgmma
