// 16-bit numbers as float32.
#pragma once

#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

template <Dtype dtype>
ATTUNE_DEVICE float to_float(uint16_t bits) {
  float x;
  if constexpr (dtype == Dtype::bf16)
    x = __int_as_float(static_cast<int>(bits) << 16);
  else
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}

}  // namespace attune::device
#endif
