// The 16-byte chunks of a row of Q, K, V and P lie at places that are permuted by the row's number, by an exclusive or:
// eight rows read together then come from eight different groups of banks. WMMA reads rows at equal distances alone, so
// ldmatrix and mma.sync take its place. Scores and the output still go through shared memory.
//
// attune kernel
// entry: attention
// threads: 160
// grid: ceil_div(q, 64), h, b
// shared: (64 + 4 * 32) * d * 2 + 64 * 32 * 4 + 64 * 32 * 2 + 64 * d * 4
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

constexpr int rows = 64, own_rows = 16, keys = 32, consumers = 4, threads = (consumers + 1) * 32, stages = 2;
constexpr int full_barrier = 1, free_barrier = full_barrier + stages;
constexpr int chunks = D / 8;  // of 16 bytes, in a row

DEVICE void produce(ELEMENT* tiles, const Head<ELEMENT>& head, int k, int end, int lane) {
  for (int first_key = 0, tile = 0; first_key < end; first_key += keys, ++tile) {
    const int stage = tile % stages;
    if (tile >= stages) barrier_sync(free_barrier + stage, threads);
    ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
    for (int i = lane; i < keys * chunks; i += 32) {
      const int key = min(first_key + i / chunks, k - 1), at = swizzled<chunks>(i / chunks, i % chunks);
      const bool read = first_key + i / chunks < k;
      cp_async_16(key_tile + at, row_of(head.k, key, head.kv_step) + i % chunks * 8, read);
      cp_async_16(key_tile + keys * D + at, row_of(head.v, key, head.kv_step) + i % chunks * 8, read);
    }
    cp_async_commit();
    if (tile == 0) continue;
    cp_async_wait<1>();
    barrier_arrive(full_barrier + (tile - 1) % stages, threads);
  }
  if (end == 0) return;
  cp_async_wait<0>();
  barrier_arrive(full_barrier + ((end + keys - 1) / keys - 1) % stages, threads);
}

__global__ void __launch_bounds__(160) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                 float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  ELEMENT* const all_queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const tiles = all_queries + rows * D;          // [stages] K and V [keys][D]
  const int first_row = blockIdx.x * rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  const int end = keys_seen(min(first_row + rows, q) - 1, q, k, causal);
  if (warp == consumers) return produce(tiles, head, k, end, lane);

  const int own_first = warp * own_rows;
  float* const all_scores = reinterpret_cast<float*>(tiles + stages * 2 * keys * D);
  ELEMENT* const all_weights = reinterpret_cast<ELEMENT*>(all_scores + rows * keys);
  float* const all_out = reinterpret_cast<float*>(all_weights + rows * keys);
  ELEMENT* const queries = all_queries + own_first * D;
  float* const scores = all_scores + own_first * keys;
  ELEMENT* const weights = all_weights + own_first * keys;
  float* const out = all_out + own_first * D;
  for (int i = lane; i < own_rows * chunks; i += 32) {
    const int row = first_row + own_first + i / chunks;
    ELEMENT* const to = queries + swizzled<chunks>(i / chunks, i % chunks);
    if (row < q)
      copy_16(to, row_of(head.q, row, head.q_step) + i % chunks * 8);
    else
      zero_16(to);
  }
  for (int i = lane; i < own_rows * D; i += 32) out[i] = 0.f;
  __syncwarp();

  // Of the results of an mma a lane has columns `column` and the next of rows `group` and group + 8.
  const int group = lane / 4, column = lane % 4 * 2;
  float largest[own_rows], sum[own_rows];
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    largest[r] = -INFINITY;
    sum[r] = 0.f;
  }
  for (int first_key = 0, tile = 0; first_key < end; first_key += keys, ++tile) {
    const int stage = tile % stages;
    const ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
    const ELEMENT* const value_tile = key_tile + keys * D;
    barrier_sync(full_barrier + stage, threads);
    for (int block = 0; block < keys; block += 16) {
      float score[2][4] = {};
      UNROLL
      for (int i = 0; i < D / 16; ++i) {
        unsigned a[4], b[4];
        ldmatrix(a, queries + swizzled<chunks>(lane % 16, i * 2 + lane / 16));
        ldmatrix(b, key_tile + swizzled<chunks>(block + lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2));
        mma_16x8x16<ELEMENT>(score[0], a, b[0], b[1]);
        mma_16x8x16<ELEMENT>(score[1], a, b[2], b[3]);
      }
      UNROLL
      for (int j = 0; j < 8; ++j)
        scores[(group + j % 4 / 2 * 8) * keys + block + j / 4 * 8 + column + j % 2] = score[j / 4][j % 4];
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
      weights[swizzled<keys / 8>(r, lane / 8) + lane % 8] = static_cast<ELEMENT>(weight);
      for (int i = lane; i < D; i += 32) out[r * D + i] *= shrink;
    }
    __syncwarp();
    for (int dim = 0; dim < D; dim += 16) {
      float change[2][4];
      UNROLL
      for (int j = 0; j < 8; ++j)
        change[j / 4][j % 4] = out[(group + j % 4 / 2 * 8) * D + dim + j / 4 * 8 + column + j % 2];
      UNROLL
      for (int key = 0; key < keys; key += 16) {
        unsigned a[4], b[4];
        ldmatrix(a, weights + swizzled<keys / 8>(lane % 16, key / 8 + lane / 16));
        ldmatrix_transposed(b, value_tile + swizzled<chunks>(key + lane % 16, dim / 8 + lane / 16));
        mma_16x8x16<ELEMENT>(change[0], a, b[0], b[1]);
        mma_16x8x16<ELEMENT>(change[1], a, b[2], b[3]);
      }
      UNROLL
      for (int j = 0; j < 8; ++j)
        out[(group + j % 4 / 2 * 8) * D + dim + j / 4 * 8 + column + j % 2] = change[j / 4][j % 4];
    }
    if (first_key + stages * keys < end) barrier_arrive(free_barrier + stage, threads);
    __syncwarp();
  }
  UNROLL
  for (int r = 0; r < own_rows; ++r) {
    const int row = first_row + own_first + r;
    if (row >= q) continue;
    for (int i = lane; i < D; i += 32)
      row_of(head.o, row, head.q_step)[i] = static_cast<ELEMENT>(sum[r] > 0.f ? out[r * D + i] / sum[r] : 0.f);
    if (lane == 0) head.lse[row] = sum[r] > 0.f ? largest[r] + logf(sum[r]) : -INFINITY;
  }
}
