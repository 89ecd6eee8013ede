// The log-sum-exp of a row: what it is and where it goes.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

// `sum` is relative to `max`; `empty`: the row saw no key.
template <typename Params>
ATTUNE_DEVICE void store_log_sum_exp(const Params& params, int batch, int head, int row, float max, float sum,
                                     bool empty) {
  constexpr float ln2 = 0.693147180559945f;
  params.lse[batch * params.lse_batch_stride + head * params.lse_head_stride + row * params.lse_row_stride] =
      empty ? minus_infinity : (max * params.scale_log2 + log2_approx(sum)) * ln2;
}

}  // namespace attune::device::sm90
#endif
