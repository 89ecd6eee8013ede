// One call with every feature of attune_forward_desc, as the plain kernels see it.
#pragma once

#include "kernels/any/simt.cuh"
#include "kernels/attention/key_range.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::any {

// The bits of attune_features that a kernel asks for.
constexpr uint32_t feature_softcap = 0x004, feature_sink = 0x008, feature_bias = 0x010, feature_mask = 0x020,
                   feature_packed = 0x040, feature_used_q = 0x080, feature_used_k = 0x100, feature_lse = 0x200;

struct Strides {
  int64_t batch, row, head;
};

struct ScoreStrides {
  int64_t batch, head, query, key;
};

// Strides in elements. Pointers of features that are off are null.
struct Call {
  const void *q, *k, *v;
  void* o;
  float* lse;
  const float* sink;
  const void* bias;
  const uint8_t* mask;
  const int32_t *cu_seqlens_q, *cu_seqlens_k, *used_q, *used_k;
  Strides q_strides, k_strides, v_strides, o_strides, lse_strides;
  ScoreStrides bias_strides, mask_strides;
  int64_t batch, heads, group, seq_q, seq_k, total_q, total_k;
  int64_t window_left, window_right;
  double scale, softcap;
  uint32_t features;
  int32_t dim_qk, dim_v;
  Alignment causal;
  Dtype bias_dtype;
  int32_t reserved;
};

#ifdef ATTUNE_DEVICE

// Element 0 of a row of q, k, v or o; packed sequences have no batch stride.
ATTUNE_DEVICE int64_t row_offset(const Call& call, const Strides& strides, int64_t batch, int64_t row, int64_t head) {
  return ((call.features & feature_packed) ? 0 : batch * strides.batch) + row * strides.row + head * strides.head;
}

ATTUNE_DEVICE int64_t score_offset(const ScoreStrides& strides, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return batch * strides.batch + head * strides.head + row * strides.query + key * strides.key;
}

ATTUNE_DEVICE bool masked(const Call& call, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return (call.features & feature_mask) && call.mask[score_offset(call.mask_strides, batch, head, row, key)] == 0;
}

ATTUNE_DEVICE float bias_at(const Call& call, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return load_element(call.bias, call.bias_dtype, score_offset(call.bias_strides, batch, head, row, key));
}

// A block of query rows of one head. Blocks of a head follow each other, the last (under a causal mask the longest)
// first.
struct Block {
  int64_t batch, head, first_row;
};
ATTUNE_DEVICE Block block_of(const Call& call, int64_t index, int rows) {
  const int64_t blocks = ceil_div<int64_t>(call.seq_q, rows);
  const int64_t pair = index / blocks;
  return {pair / call.heads, pair % call.heads, (blocks - 1 - index % blocks) * rows};
}

#endif

}  // namespace attune::device::any
