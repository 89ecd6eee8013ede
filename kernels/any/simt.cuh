// What plain kernels ask of the machine: lanes, shared memory, conversions. Nothing here needs more than sm_80.
//
// The tests run the same kernels on the CPU: tests/any/emulator.hpp defines ATTUNE_DEVICE and everything below that
// stands under __CUDACC_RTC__ for itself, so plain kernels use nothing else of the GPU.
#pragma once

#include "kernels/common/types.cuh"

#ifdef ATTUNE_DEVICE
namespace attune::device {

constexpr int warp_size = 32;
constexpr double log2_e = 1.4426950408889634074;

struct alignas(16) Float4 {
  float x, y, z, w;
};

#ifdef __CUDACC_RTC__
#define ATTUNE_UNROLL _Pragma("unroll")
#define ATTUNE_ROLLED _Pragma("unroll 1")

ATTUNE_DEVICE void* shared_memory() {
  extern __shared__ __align__(16) unsigned char attune_shared_memory[];
  return attune_shared_memory;
}

ATTUNE_DEVICE float infinity() { return __int_as_float(0x7f800000); }

ATTUNE_DEVICE float from_16_bits(Dtype dtype, uint16_t bits) {
  if (dtype == Dtype::bf16) return __int_as_float(static_cast<int>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Round to nearest even.
ATTUNE_DEVICE uint16_t to_16_bits(Dtype dtype, float value) {
  uint16_t bits;
  if (dtype == Dtype::bf16)
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

// Element `index` of a tensor.
ATTUNE_DEVICE float load_element(const void* data, Dtype dtype, int64_t index) {
  if (dtype == Dtype::f32) return static_cast<const float*>(data)[index];
  return from_16_bits(dtype, static_cast<const uint16_t*>(data)[index]);
}

ATTUNE_DEVICE void store_element(void* data, Dtype dtype, int64_t index, float value) {
  if (dtype == Dtype::f32)
    static_cast<float*>(data)[index] = value;
  else
    static_cast<uint16_t*>(data)[index] = to_16_bits(dtype, value);
}

// Over the lanes of a warp; every lane gets the result.
template <typename Real>
ATTUNE_DEVICE Real warp_sum(Real x) {
  ATTUNE_UNROLL
  for (int distance = warp_size / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// A NaN loses against a number.
template <typename Real>
ATTUNE_DEVICE Real warp_max(Real x) {
  ATTUNE_UNROLL
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    x = fmax(x, __shfl_xor_sync(0xffffffffu, x, distance));
  return x;
}

}  // namespace attune::device
#endif
