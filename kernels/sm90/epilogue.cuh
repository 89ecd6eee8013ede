// Where a row of O and its log-sum-exp go, and what the log-sum-exp is.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

template <typename Params>
ATTUNE_DEVICE uint16_t* output_row(const Params& params, int batch, int head, int row) {
  return static_cast<uint16_t*>(params.o) + batch * params.o_batch_stride + head * params.o_head_stride +
         row * params.o_row_stride;
}

// `sum` is relative to `max`; a row without keys has a sum of 0.
template <typename Params>
ATTUNE_DEVICE void store_log_sum_exp(const Params& params, int batch, int head, int row, float max, float sum) {
  constexpr float ln2 = 0.693147180559945f;
  params.lse[batch * params.lse_batch_stride + head * params.lse_head_stride + row * params.lse_row_stride] =
      sum == 0.f ? minus_infinity : (max * params.scale_log2 + log2_approx(sum)) * ln2;
}

}  // namespace attune::device::sm90
#endif
