// The reports' production kernel: the roles of lanes are inverted. A lane has a row, where it had a key; the four warps
// of a block share 32 rows, each with a quarter of the keys of a 32 x 32 tile for the scores and a quarter of the head
// dimension for the output. Keys and values are read by all lanes of a warp at one address, which costs one turn, and
// nothing is reduced between lanes. Rows of Q and of the scores are padded, so that lanes meet in no bank.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 32), h, b
// shared: 32 * (d + 2) * 2 + 2 * 32 * d * 2 + 32 * 33 * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int rows = 32, keys = 32, threads = 128, parts = threads / rows, own_keys = keys / parts;
  constexpr int own_dims = D / parts, q_stride = D + 2, score_stride = keys + 1;
  ELEMENT* const key_tile = shared_memory<ELEMENT>();  // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;
  float* const scores = reinterpret_cast<float*>(value_tile + keys * D);              // [rows][score_stride]
  ELEMENT* const queries = reinterpret_cast<ELEMENT*>(scores + rows * score_stride);  // [rows][q_stride]

  const int first_row = blockIdx.x * rows, thread = threadIdx.x, row = thread % rows, part = thread / rows;
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread; i < rows * D; i += threads)
    queries[i / D * q_stride + i % D] =
        first_row + i / D < q ? row_of(head.q, first_row + i / D, head.q_step)[i % D] : ELEMENT(0.f);

  float largest = -INFINITY, sum = 0.f, out[own_dims];
  UNROLL
  for (int i = 0; i < own_dims; ++i) out[i] = 0.f;
  const int seen = keys_seen(first_row + row, q, k, causal);
  const int end = keys_seen(min(first_row + rows, q) - 1, q, k, causal);
  for (int first_key = 0; first_key < end; first_key += keys) {
    for (int i = thread * 8; i < keys * D; i += threads * 8) {
      const int key = first_key + i / D;
      if (key < k) {
        copy_16(key_tile + i, row_of(head.k, key, head.kv_step) + i % D);
        copy_16(value_tile + i, row_of(head.v, key, head.kv_step) + i % D);
      } else {
        zero_16(key_tile + i);
        zero_16(value_tile + i);
      }
    }
    __syncthreads();
    float score[own_keys];
    UNROLL
    for (int j = 0; j < own_keys; ++j) score[j] = 0.f;
    for (int i = 0; i < D; ++i) {
      const float query = static_cast<float>(queries[row * q_stride + i]);
      UNROLL
      for (int j = 0; j < own_keys; ++j)
        score[j] += query * static_cast<float>(key_tile[(part * own_keys + j) * D + i]);
    }
    UNROLL
    for (int j = 0; j < own_keys; ++j) {
      const int key = part * own_keys + j;
      scores[row * score_stride + key] = first_key + key < seen ? score[j] * scale : -INFINITY;
    }
    __syncthreads();
    // Each of the four threads of a row goes through its scores: four times the exponentials, and no exchange.
    float now = largest;
    for (int key = 0; key < keys; ++key) now = fmaxf(now, scores[row * score_stride + key]);
    const float shrink = expf(largest - finite(now));
    largest = now;
    sum *= shrink;
    UNROLL
    for (int i = 0; i < own_dims; ++i) out[i] *= shrink;
    for (int key = 0; key < keys; ++key) {
      const float weight = expf(scores[row * score_stride + key] - finite(now));
      sum += weight;
      UNROLL
      for (int i = 0; i < own_dims; ++i)
        out[i] += weight * static_cast<float>(value_tile[key * D + part * own_dims + i]);
    }
    __syncthreads();
  }
  if (first_row + row >= q) return;
  UNROLL
  for (int i = 0; i < own_dims; ++i)
    row_of(head.o, first_row + row, head.q_step)[part * own_dims + i] =
        static_cast<ELEMENT>(sum > 0.f ? out[i] / sum : 0.f);
  if (part == 0) head.lse[first_row + row] = sum > 0.f ? largest + logf(sum) : -INFINITY;
}
