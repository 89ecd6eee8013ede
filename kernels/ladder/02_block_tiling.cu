// A block computes 16 rows and takes the keys 32 at a time: a tile of K and V is read into shared memory once for all
// 16 rows, where the minimal kernel read it once for each. Scores lie in shared memory too, and the largest of a row
// and the sum are found there by halving, with a barrier at each step. Neighbouring threads compute the scores of
// neighbouring keys, whose rows begin in the same bank of shared memory: every read is served in 32 turns.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 16), h, b
// shared: (16 + 2 * 32) * d * 2 + 2 * 16 * 32 * 4 + 3 * 16 * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int rows = 16, keys = 32, threads = 128;
  ELEMENT* const queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const key_tile = queries + rows * D;       // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;
  float* const scores = reinterpret_cast<float*>(value_tile + keys * D);  // [rows][keys]
  float* const halves = scores + rows * keys;
  float* const largest = halves + rows * keys;  // [rows]
  float* const sums = largest + rows;
  float* const shrinks = sums + rows;

  const int first_row = blockIdx.x * rows, thread = threadIdx.x;
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread; i < rows * D; i += threads)
    queries[i] = first_row + i / D < q ? row_of(head.q, first_row + i / D, head.q_step)[i % D] : ELEMENT(0.f);
  if (thread < rows) {
    largest[thread] = -INFINITY;
    sums[thread] = 0.f;
  }

  // Of the output a thread has one element of several rows.
  constexpr int row_step = threads / D, own_rows = rows / row_step;
  const int dim = thread % D, own_row = thread / D;
  float out[own_rows];
  for (int j = 0; j < own_rows; ++j) out[j] = 0.f;

  const int end = keys_seen(min(first_row + rows, q) - 1, q, k, causal);  // what the last row sees, all others see less
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
      scores[i] = halves[i] = visible ? score * scale : -INFINITY;
    }
    __syncthreads();
    for (int half = keys / 2; half > 0; half /= 2) {
      for (int i = thread; i < rows * half; i += threads) {
        const int at = i / half * keys + i % half;
        halves[at] = fmaxf(halves[at], halves[at + half]);
      }
      __syncthreads();
    }
    if (thread < rows) {
      const float before = largest[thread], now = fmaxf(before, halves[thread * keys]);
      shrinks[thread] = expf(before - finite(now));
      largest[thread] = now;
    }
    __syncthreads();
    for (int i = thread; i < rows * keys; i += threads)
      scores[i] = halves[i] = expf(scores[i] - finite(largest[i / keys]));
    __syncthreads();
    for (int half = keys / 2; half > 0; half /= 2) {
      for (int i = thread; i < rows * half; i += threads) {
        const int at = i / half * keys + i % half;
        halves[at] += halves[at + half];
      }
      __syncthreads();
    }
    if (thread < rows) sums[thread] = sums[thread] * shrinks[thread] + halves[thread * keys];
    for (int j = 0; j < own_rows; ++j) {
      const int row = own_row + j * row_step;
      float change = 0.f;
      for (int key = 0; key < keys; ++key)
        change += scores[row * keys + key] * static_cast<float>(value_tile[key * D + dim]);
      out[j] = out[j] * shrinks[row] + change;
    }
    __syncthreads();  // the next tile takes the place of this one
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
