// The four lanes that share a row of a matrix fragment: reductions over them, and an exchange that gives each of them
// contiguous columns.
#pragma once

#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

ATTUNE_DEVICE float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

ATTUNE_DEVICE float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Before: lane q holds its own part of groups 0..3. After: it holds all four parts of group q, in order.
ATTUNE_DEVICE void quad_transpose(uint32_t (&x)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1);
  const uint32_t b = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
  const uint32_t y[4] = {odd ? a : x[0], odd ? x[1] : a, odd ? b : x[2], odd ? x[3] : b};
  const uint32_t c = __shfl_xor_sync(0xffffffffu, high ? y[0] : y[2], 2);
  const uint32_t d = __shfl_xor_sync(0xffffffffu, high ? y[1] : y[3], 2);
  x[0] = high ? c : y[0];
  x[1] = high ? d : y[1];
  x[2] = high ? y[2] : c;
  x[3] = high ? y[3] : d;
}

}  // namespace attune::device
#endif
