// The products of Q and K are computed by the tensor cores, with WMMA: a warp has 16 rows, and writes its 16 x 32
// scores to shared memory, since which lane holds which score is not told. Softmax and the products with V stay scalar,
// as in the rung of eight warps, with 16 rows a warp, so that a value read from shared memory serves all of them.
//
// attune kernel
// entry: attention
// threads: 128
// grid: ceil_div(q, 64), h, b
// shared: (64 + 2 * 32) * d * 2 + 64 * 32 * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(128) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int rows = 64, own_rows = 16, keys = 32, threads = 128, per_lane = D / 32;
  ELEMENT* const queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const key_tile = queries + rows * D;       // [keys][D]
  ELEMENT* const value_tile = key_tile + keys * D;
  const int first_row = blockIdx.x * rows, thread = threadIdx.x, lane = thread % 32;
  const int own_first = thread / 32 * own_rows;  // of the block's rows
  float* const scores =
      reinterpret_cast<float*>(value_tile + keys * D) + own_first * keys;  // the warp's [own_rows][keys]

  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  for (int i = thread * 8; i < rows * D; i += threads * 8) {
    const int row = first_row + i / D;
    if (row < q)
      copy_16(queries + i, row_of(head.q, row, head.q_step) + i % D);
    else
      zero_16(queries + i);
  }

  float largest[own_rows], sum[own_rows], out[own_rows][per_lane];
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0.f;
    UNROLL
    for (int c = 0; c < per_lane; ++c) out[r][c] = 0.f;
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
        WmmaB<ELEMENT, false> b;  // a key is a column
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
      scores[r * keys + lane] = weight;
      UNROLL
      for (int c = 0; c < per_lane; ++c) out[r][c] *= shrink;
    }
    __syncwarp();
    for (int key = 0; key < keys; ++key) {
      float value[per_lane];
      UNROLL
      for (int c = 0; c < per_lane; ++c) value[c] = static_cast<float>(value_tile[key * D + lane + 32 * c]);
      UNROLL
      for (int r = 0; r < own_rows; ++r) {
        const float weight = scores[r * keys + key];
        UNROLL
        for (int c = 0; c < per_lane; ++c) out[r][c] += weight * value[c];
      }
    }
    __syncthreads();
  }
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    const int row = first_row + own_first + r;
    if (row >= q) continue;
    UNROLL
    for (int c = 0; c < per_lane; ++c)
      row_of(head.o, row, head.q_step)[lane + 32 * c] = static_cast<ELEMENT>(sum[r] > 0.f ? out[r][c] / sum[r] : 0.f);
    if (lane == 0) head.lse[row] = sum[r] > 0.f ? largest[r] + logf(sum[r]) : -INFINITY;
  }
}
