// The products of P and V go to the tensor cores as well. The output must be scaled whenever a row's maximum grows, and
// since nobody knows which lane of a fragment holds which row, it lies in shared memory between two tiles: read,
// scaled, written, read as a fragment, written. That traffic is what WMMA costs here.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 64), h, b
// shared: (64 + 2 * 32) * d * 2 + 64 * 32 * 4 + 64 * 32 * 2 + 64 * d * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int rows = 64, own_rows = 16, keys = 32, threads = 128;
  ELEMENT* const queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const key_tile = queries + rows * D;       // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;
  const int first_row = blockIdx.x * rows, thread = threadIdx.x, lane = thread % 32;
  const int own_first = thread / 32 * own_rows;
  float* const all_scores = reinterpret_cast<float*>(value_tile + keys * D);
  ELEMENT* const all_weights = reinterpret_cast<ELEMENT*>(all_scores + rows * keys);
  float* const all_out = reinterpret_cast<float*>(all_weights + rows * keys);
  // Of this warp: [own_rows][keys], [own_rows][keys] and [own_rows][D].
  float* const scores = all_scores + own_first * keys;
  ELEMENT* const weights = all_weights + own_first * keys;
  float* const out = all_out + own_first * D;

  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread * 8; i < rows * D; i += threads * 8) {
    const int row = first_row + i / D;
    if (row < q)
      copy_16(queries + i, row_of(head.q, row, head.q_step) + i % D);
    else
      zero_16(queries + i);
  }
  for (int i = lane; i < own_rows * D; i += 32) out[i] = 0.f;

  float largest[own_rows], sum[own_rows];
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0.f;
  }

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
    for (int block = 0; block < keys; block += 16) {
      WmmaC score{};
      UNROLL
      for (int i = 0; i < D; i += 16) {
        WmmaA<ELEMENT> a;
        WmmaB<ELEMENT, false> b;
        wmma_load(a, queries + own_first * D + i, D);
        wmma_load(b, key_tile + block * D + i, D);
        wmma_mma(score, a, b);
      }
      wmma_store(scores + block, score, keys);
    }
    __syncwarp();
    UNROLL
    for (int r = 0; r < own_rows; ++r) {
      const bool visible = first_key + lane < keys_seen(first_row + own_first + r, q, k, causal);
      const float score = visible ? scores[r * keys + lane] * scale : -INFINITY;
      const float now = fmaxf(largest[r], warp_max(score));
      const float shrink = expf(largest[r] - finite(now)), weight = expf(score - finite(now));
      sum[r] = sum[r] * shrink + warp_sum(weight);
      largest[r] = now;
      weights[r * keys + lane] = static_cast<ELEMENT>(weight);
      for (int i = lane; i < D; i += 32) out[r * D + i] *= shrink;
    }
    __syncwarp();
    for (int dim = 0; dim < D; dim += 16) {
      WmmaC change;
      wmma_load(change, out + dim, D);
      UNROLL
      for (int key = 0; key < keys; key += 16) {
        WmmaA<ELEMENT> a;
        WmmaB<ELEMENT, true> b;  // a key is a row
        wmma_load(a, weights + key, keys);
        wmma_load(b, value_tile + key * D + dim, D);
        wmma_mma(change, a, b);
      }
      wmma_store(out + dim, change, D);
    }
    __syncthreads();
  }
  __syncwarp();
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    const int row = first_row + own_first + r;
    if (row >= q) continue;
    for (int i = lane; i < D; i += 32)
      row_of(head.o, row, head.q_step)[i] = static_cast<ELEMENT>(sum[r] > 0.f ? out[r * D + i] / sum[r] : 0.f);
    if (lane == 0) head.lse[row] = sum[r] > 0.f ? largest[r] + logf(sum[r]) : -INFINITY;
  }
}
