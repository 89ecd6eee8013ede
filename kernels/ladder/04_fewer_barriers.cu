// A warp owns four rows from the scores to the output: a lane has the score of one key, then a part of the head
// dimension, and weights travel between lanes by shuffles. Scores, maxima and sums leave shared memory, and of the four
// barriers a tile two remain: one before the tile is read, one before the next takes its place.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 16), h, b
// shared: (16 + 2 * 32) * d * 2
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int warps = 4, threads = warps * 32, own_rows = 4, rows = warps * own_rows, keys = 32, per_lane = D / 32;
  ELEMENT* const queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const key_tile = queries + rows * D;       // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;

  const int first_row = blockIdx.x * rows, thread = threadIdx.x, lane = thread % 32;
  const int own_first = thread / 32 * own_rows;  // of the block's rows
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread; i < rows * D; i += threads)
    queries[i] = first_row + i / D < q ? row_of(head.q, first_row + i / D, head.q_step)[i % D] : ELEMENT(0.f);

  float largest[own_rows], sum[own_rows], out[own_rows][per_lane];
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0.f;
    for (int c = 0; c < per_lane; ++c) out[r][c] = 0.f;
  }

  const int end = keys_seen(min(first_row + rows, q) - 1, q, k, causal);
  for (int first_key = 0; first_key < end; first_key += keys) {
    for (int i = thread; i < keys * D; i += threads) {
      const int key = first_key + i / D;
      key_tile[i] = key < k ? row_of(head.k, key, head.kv_step)[i % D] : ELEMENT(0.f);
      value_tile[i] = key < k ? row_of(head.v, key, head.kv_step)[i % D] : ELEMENT(0.f);
    }
    __syncthreads();
    float weight[own_rows];
    UNROLL
    for (int r = 0; r < own_rows; ++r) {
      float score = 0.f;
      for (int j = 0; j < D; ++j)
        score += static_cast<float>(queries[(own_first + r) * D + j]) * static_cast<float>(key_tile[lane * D + j]);
      const bool visible = first_key + lane < keys_seen(first_row + own_first + r, q, k, causal);
      score = visible ? score * scale : -INFINITY;
      const float now = fmaxf(largest[r], warp_max(score));
      const float shrink = expf(largest[r] - finite(now));
      weight[r] = expf(score - finite(now));
      sum[r] = sum[r] * shrink + warp_sum(weight[r]);
      largest[r] = now;
      UNROLL
      for (int c = 0; c < per_lane; ++c) out[r][c] *= shrink;
    }
    for (int key = 0; key < keys; ++key) {
      float value[per_lane];
      UNROLL
      for (int c = 0; c < per_lane; ++c) value[c] = static_cast<float>(value_tile[key * D + lane + 32 * c]);
      UNROLL
      for (int r = 0; r < own_rows; ++r) {
        const float of_key = __shfl_sync(0xffffffffu, weight[r], key);
        UNROLL
        for (int c = 0; c < per_lane; ++c) out[r][c] += of_key * value[c];
      }
    }
    __syncthreads();
  }
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    const int row = first_row + own_first + r;
    if (row >= q) continue;
    for (int c = 0; c < per_lane; ++c)
      row_of(head.o, row, head.q_step)[lane + 32 * c] = static_cast<ELEMENT>(sum[r] > 0.f ? out[r][c] / sum[r] : 0.f);
    if (lane == 0) head.lse[row] = sum[r] > 0.f ? largest[r] + logf(sum[r]) : -INFINITY;
  }
}
