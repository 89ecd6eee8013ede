// A fifth warp does nothing but copy: with cp.async it fills one of two stages of K and V while the other four compute
// from the other one. Two barriers a stage say that it is full, or free again. What the four warps do with a tile is as
// before, and the reports gained 1.01 by this: memory was not what they waited for.
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
constexpr int full_barrier = 1, free_barrier = full_barrier + stages;  // of the first stage

DEVICE void produce(ELEMENT* tiles, const Head<ELEMENT>& head, int k, int end, int lane) {
  for (int first_key = 0, tile = 0; first_key < end; first_key += keys, ++tile) {
    const int stage = tile % stages;
    if (tile >= stages) barrier_sync(free_barrier + stage, threads);
    ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
    for (int i = lane * 8; i < keys * D; i += 32 * 8) {
      const int key = min(first_key + i / D, k - 1);
      const bool read = first_key + i / D < k;
      cp_async_16(key_tile + i, row_of(head.k, key, head.kv_step) + i % D, read);
      cp_async_16(key_tile + keys * D + i, row_of(head.v, key, head.kv_step) + i % D, read);
    }
    cp_async_commit();
    if (tile == 0) continue;
    cp_async_wait<1>();  // the tile before
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
  // Of this warp: [own_rows][D], twice [own_rows][keys], and [own_rows][D].
  ELEMENT* const queries = all_queries + own_first * D;
  float* const scores = all_scores + own_first * keys;
  ELEMENT* const weights = all_weights + own_first * keys;
  float* const out = all_out + own_first * D;
  for (int i = lane * 8; i < own_rows * D; i += 32 * 8) {
    const int row = first_row + own_first + i / D;
    if (row < q)
      copy_16(queries + i, row_of(head.q, row, head.q_step) + i % D);
    else
      zero_16(queries + i);
  }
  for (int i = lane; i < own_rows * D; i += 32) out[i] = 0.f;
  __syncwarp();

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
      WmmaC score{};
      UNROLL
      for (int i = 0; i < D; i += 16) {
        WmmaA<ELEMENT> a;
        WmmaB<ELEMENT, false> b;
        wmma_load(a, queries + i, D);
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
        WmmaB<ELEMENT, true> b;
        wmma_load(a, weights + key, keys);
        wmma_load(b, value_tile + key * D + dim, D);
        wmma_mma(change, a, b);
      }
      wmma_store(out + dim, change, D);
    }
    if (first_key + stages * keys < end)  // there is a tile that waits for this stage
      barrier_arrive(free_barrier + stage, threads);
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
