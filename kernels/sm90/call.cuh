// What a launch of sm90/fwd_ranged is told of a call.
#pragma once

#include "kernels/common/types.cuh"
#include "kernels/sm90/score_tensor.cuh"
#include "kernels/sm90/tile.cuh"

namespace attune::device::sm90 {

// A capped score is cap * tanh(product * factor).
struct Softcap {
  float factor;  // scale / cap
  // Where no product is larger than this, tanh is product * (near[0] + near[1] * square + ...).
  float near_limit;
  float near[4];
};

struct Call {
  TensorMap q, k, v, terms;
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
  bool has_key_terms;    // Scores::staged: some terms are a vector
  bool terms_by_engine;  // Scores::staged: the copy engine takes the address of the tile's tensor
  ScoreTensor bias, mask;
};

}  // namespace attune::device::sm90
