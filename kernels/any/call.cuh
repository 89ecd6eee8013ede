// One call with every feature of attune_forward_desc, as the plain kernels see it, and which keys a row sees in it.
#pragma once

#include "kernels/any/simt.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::any {

// The bits of attune_features that a kernel asks for.
constexpr uint32_t feature_softcap = 0x004, feature_sink = 0x008, feature_bias = 0x010, feature_mask = 0x020,
                   feature_packed = 0x040, feature_used_q = 0x080, feature_used_k = 0x100, feature_lse = 0x200;

enum class Causal : int32_t { none = 0, top_left = 1, bottom_right = 2 };  // the values of attune_causal

constexpr int64_t unbounded = -1;

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
  Causal causal;
  Dtype bias_dtype;
  int32_t reserved;
};

#ifdef ATTUNE_DEVICE

// The mirror of core/visibility.hpp.
struct Sequence {
  int64_t first_row_q, first_row_k;  // where the sequence begins, in rows
  int64_t seq_q, seq_k;              // rows and keys in use
  int64_t stored_q;                  // rows that exist; those past seq_q see nothing
};

ATTUNE_DEVICE int64_t clamped(int64_t x, int64_t low, int64_t high) { return min_of(max_of(x, low), high); }

// Lengths on the device are data: they are clamped to what the descriptor promises, not trusted.
ATTUNE_DEVICE Sequence sequence_of(const Call& call, int64_t batch) {
  Sequence s{0, 0, 0, call.seq_k, call.seq_q};
  if (call.features & feature_packed) {
    s.first_row_q = clamped(call.cu_seqlens_q[batch], 0, call.total_q);
    s.first_row_k = clamped(call.cu_seqlens_k[batch], 0, call.total_k);
    const int64_t end_q = clamped(call.cu_seqlens_q[batch + 1], 0, call.total_q);
    const int64_t end_k = clamped(call.cu_seqlens_k[batch + 1], 0, call.total_k);
    s.stored_q = clamped(end_q - s.first_row_q, 0, call.seq_q);
    s.seq_k = clamped(end_k - s.first_row_k, 0, call.seq_k);
  }
  s.seq_q = s.stored_q;
  if (call.features & feature_used_q) s.seq_q = clamped(call.used_q[batch], 0, s.seq_q);
  if (call.features & feature_used_k) s.seq_k = clamped(call.used_k[batch], 0, s.seq_k);
  return s;
}

struct KeyRange {
  int64_t begin, end;  // end <= begin: none
};

// By length, causality and window; both ends rise with the row.
ATTUNE_DEVICE KeyRange visible_keys(const Call& call, const Sequence& s, int64_t row) {
  if (row >= s.seq_q) return {0, 0};
  const int64_t diagonal = call.causal == Causal::top_left ? row : row + s.seq_k - s.seq_q;
  KeyRange range{0, s.seq_k};
  if (call.causal != Causal::none) range.end = min_of(range.end, diagonal + 1);
  if (call.window_right != unbounded) range.end = min_of(range.end, diagonal + call.window_right + 1);
  if (call.window_left != unbounded) range.begin = max_of(range.begin, diagonal - call.window_left);
  return range;
}

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
