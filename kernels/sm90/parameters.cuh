// What a launch of either Hopper kernel is told of a call.
#pragma once

#include "kernels/attention/key_blocks.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::sm90 {

constexpr int rows_per_warpgroup = 64;

struct Call {
  TensorMap q, k, v;
  void* o;
  float* lse;         // null: not asked for
  const float* sink;  // by query head; null: none
  int64_t o_batch_stride, o_row_stride, o_head_stride;
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
  int32_t seq_q;
  Band<int32_t> band;  // of positions; its keys are those that some row sees
  float scale_log2;    // a logit is a product of rows of Q and K; this times it is its power of two
};

// The blocks that the rows first_row .. last_row of a sequence see. Rows past its end count as its last one.
template <Mask mask>
ATTUNE_SHARED_CODE KeyBlocks<int, mask> blocks_of(const Call& call, int first_row, int last_row, int block_n) {
  const int end_row = call.seq_q - 1;
  return key_blocks(call.band.as<mask>(), min_of(first_row, end_row), min_of(last_row, end_row), block_n);
}

}  // namespace attune::device::sm90
