// The tiles stay as they are. The 32 scores of a row are held by the 32 lanes of a warp, and their maximum and sum are
// found by shuffles, in five instructions without a barrier, where halving in shared memory took five barriers each.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 16), h, b
// shared: (16 + 2 * 32) * d * 2 + 16 * 32 * 4 + 3 * 16 * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int rows = 16, keys = 32, threads = 128, warps = threads / 32;
  ELEMENT* const queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const key_tile = queries + rows * D;       // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;
  float* const scores = reinterpret_cast<float*>(value_tile + keys * D);  // [rows][keys]
  float* const largest = scores + rows * keys;                            // [rows]
  float* const sums = largest + rows;
  float* const shrinks = sums + rows;

  const int first_row = blockIdx.x * rows, thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread; i < rows * D; i += threads)
    queries[i] = first_row + i / D < q ? row_of(head.q, first_row + i / D, head.q_step)[i % D] : ELEMENT(0.f);
  if (thread < rows) {
    largest[thread] = -INFINITY;
    sums[thread] = 0.f;
  }

  constexpr int row_step = threads / D, own_rows = rows / row_step;
  const int dim = thread % D, own_row = thread / D;
  float out[own_rows];
  for (int j = 0; j < own_rows; ++j) out[j] = 0.f;

  const int end = keys_seen(min(first_row + rows, q) - 1, q, k, causal);
  for (int first_key = 0; first_key < end; first_key += keys) {
    for (int i = thread; i < keys * D; i += threads) {
      const int key = first_key + i / D;
      key_tile[i] = key < k ? row_of(head.k, key, head.kv_step)[i % D] : ELEMENT(0.f);
      value_tile[i] = key < k ? row_of(head.v, key, head.kv_step)[i % D] : ELEMENT(0.f);
    }
    __syncthreads();
    for (int i = thread; i < rows * keys; i += threads) {
      const int row = i / keys, key = i % keys;
      float score = 0.f;
      for (int j = 0; j < D; ++j)
        score += static_cast<float>(queries[row * D + j]) * static_cast<float>(key_tile[key * D + j]);
      const bool visible = first_key + key < keys_seen(first_row + row, q, k, causal);
      scores[i] = visible ? score * scale : -INFINITY;
    }
    __syncthreads();
    for (int row = warp; row < rows; row += warps) {
      const float score = scores[row * keys + lane], before = largest[row];
      const float now = fmaxf(before, warp_max(score));
      const float weight = expf(score - finite(now)), total = warp_sum(weight);
      scores[row * keys + lane] = weight;
      __syncwarp();  // all have read what the first lane writes
      if (lane == 0) {
        shrinks[row] = expf(before - finite(now));
        sums[row] = sums[row] * shrinks[row] + total;
        largest[row] = now;
      }
    }
    __syncthreads();
    for (int j = 0; j < own_rows; ++j) {
      const int row = own_row + j * row_step;
      float change = 0.f;
      for (int key = 0; key < keys; ++key)
        change += scores[row * keys + key] * static_cast<float>(value_tile[key * D + dim]);
      out[j] = out[j] * shrinks[row] + change;
    }
    __syncthreads();
  }
  __syncthreads();
  for (int j = 0; j < own_rows; ++j) {
    const int row = own_row + j * row_step;
    if (first_row + row >= q) continue;
    const float sum = sums[row];
    row_of(head.o, first_row + row, head.q_step)[dim] = static_cast<ELEMENT>(sum > 0.f ? out[j] / sum : 0.f);
    if (dim == 0) head.lse[first_row + row] = sum > 0.f ? largest[row] + logf(sum) : -INFINITY;
  }
}
