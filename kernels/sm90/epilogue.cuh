// Where the results of a dense problem go, and the log-sum-exp of a row.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::sm90 {

struct DenseOutputs {
  void* o;
  float* lse;  // null: not asked for
  int64_t o_batch_stride, o_row_stride, o_head_stride;
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
};

#ifdef __CUDACC_RTC__

// `sum` is relative to `max`; `empty`: the row saw no key.
ATTUNE_DEVICE void store_log_sum_exp(const DenseOutputs& to, float scale_log2, int batch, int head, int row, float max,
                                     float sum, bool empty) {
  constexpr float ln2 = 0.693147180559945f;
  to.lse[batch * to.lse_batch_stride + head * to.lse_head_stride + row * to.lse_row_stride] =
      empty ? minus_infinity : (max * scale_log2 + log2_approx(sum)) * ln2;
}

#endif

}  // namespace attune::device::sm90
