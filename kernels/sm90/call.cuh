// What a launch of sm90/fwd_ranged is told of a call.
#pragma once

#include "kernels/common/types.cuh"
#include "kernels/sm90/tile.cuh"

namespace attune::device::sm90 {

// A capped score is cap * tanh(product * factor).
struct Softcap {
  float factor;  // scale / cap
};

// A bias or a boolean mask, with strides of 0 where it is broadcast.
struct ScoreTensor {
  const void* data;  // null: none
  int64_t batch_stride, head_stride, row_stride, key_stride;
  bool in_pairs;  // two neighbouring keys lie side by side, at a multiple of both, whatever the row
};

struct Call {
  TensorMap q, k, v;
  void* o;
  float* lse;         // null: not asked for
  const float* sink;  // by query head; null: none
  int64_t o_batch_stride, o_row_stride, o_head_stride;
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
  // Results over a part of the keys, which sm90/combine joins: [part][row of the tile][dim_v], [part][row].
  float *part_o, *part_lse;
  int32_t dim_v;
  Pack pack;
  float scale_log2;  // from what the softmax sees of a score to its power of two
  Softcap softcap;   // where scores are capped
  // Where scores have terms.
  float scale, cap;  // a cap of 0: none
  bool bias_is_float;
  ScoreTensor bias, mask;
};

}  // namespace attune::device::sm90
