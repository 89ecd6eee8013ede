// Where an mma.sync leaves its results is known, so scores, weights and the output stay in registers from the first
// tile to the last: four lanes share a row, its maximum and sum take two shuffles, and what a lane holds of the weights
// is what it needs of them as an operand. Shared memory holds Q, K and V alone, and Q is read from it once.
//
// attune kernel
// entry: attention
// threads: 160
// grid: ceil_div(q, 64), h, b
// shared: (64 + 4 * 32) * d * 2
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
  ELEMENT* const queries = all_queries + own_first * D;
  for (int i = lane; i < own_rows * chunks; i += 32) {
    const int row = first_row + own_first + i / chunks;
    ELEMENT* const to = queries + swizzled<chunks>(i / chunks, i % chunks);
    if (row < q)
      copy_16(to, row_of(head.q, row, head.q_step) + i % chunks * 8);
    else
      zero_16(to);
  }
  __syncwarp();
  unsigned query[D / 16][4];
  UNROLL
  for (int i = 0; i < D / 16; ++i) ldmatrix(query[i], queries + swizzled<chunks>(lane % 16, i * 2 + lane / 16));

  // A lane has columns `column` and the next of two rows, in every block of eight columns.
  const int column = lane % 4 * 2;
  const int own_row[2] = {first_row + own_first + lane / 4, first_row + own_first + lane / 4 + 8};
  const int seen[2] = {keys_seen(own_row[0], q, k, causal), keys_seen(own_row[1], q, k, causal)};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, out[D / 8][4] = {};
  for (int first_key = 0, tile = 0; first_key < end; first_key += keys, ++tile) {
    const int stage = tile % stages;
    const ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
    const ELEMENT* const value_tile = key_tile + keys * D;
    barrier_sync(full_barrier + stage, threads);
    float score[keys / 8][4] = {};
    UNROLL
    for (int i = 0; i < D / 16; ++i) {
      UNROLL
      for (int block = 0; block < keys / 8; block += 2) {
        unsigned b[4];
        ldmatrix(b, key_tile + swizzled<chunks>(block * 8 + lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2));
        mma_16x8x16<ELEMENT>(score[block], query[i], b[0], b[1]);
        mma_16x8x16<ELEMENT>(score[block + 1], query[i], b[2], b[3]);
      }
    }
    float now[2] = {largest[0], largest[1]}, total[2] = {0.f, 0.f}, shrink[2];
    UNROLL
    for (int j = 0; j < keys / 2; ++j) {  // four of each block of eight keys
      const int key = first_key + j / 4 * 8 + column + j % 2, r = j % 4 / 2;
      float& x = score[j / 4][j % 4];
      x = key < seen[r] ? x * scale : -INFINITY;
      now[r] = fmaxf(now[r], x);
    }
    UNROLL
    for (int r = 0; r < 2; ++r) {
      now[r] = warp_max<4>(now[r]);
      shrink[r] = expf(largest[r] - finite(now[r]));
      largest[r] = now[r];
    }
    UNROLL
    for (int j = 0; j < keys / 2; ++j) {
      float& x = score[j / 4][j % 4];
      x = expf(x - finite(now[j % 4 / 2]));
      total[j % 4 / 2] += x;
    }
    UNROLL
    for (int r = 0; r < 2; ++r) sum[r] = sum[r] * shrink[r] + total[r];
    UNROLL
    for (int j = 0; j < D / 2; ++j) out[j / 4][j % 4] *= shrink[j % 4 / 2];
    UNROLL
    for (int block = 0; block < keys / 8; block += 2) {
      const unsigned weights[4] = {pack2<ELEMENT>(score[block][0], score[block][1]),
                                   pack2<ELEMENT>(score[block][2], score[block][3]),
                                   pack2<ELEMENT>(score[block + 1][0], score[block + 1][1]),
                                   pack2<ELEMENT>(score[block + 1][2], score[block + 1][3])};
      UNROLL
      for (int dim = 0; dim < D / 8; dim += 2) {
        unsigned b[4];
        ldmatrix_transposed(b, value_tile + swizzled<chunks>(block * 8 + lane % 16, dim + lane / 16));
        mma_16x8x16<ELEMENT>(out[dim], weights, b[0], b[1]);
        mma_16x8x16<ELEMENT>(out[dim + 1], weights, b[2], b[3]);
      }
    }
    if (first_key + stages * keys < end) barrier_arrive(free_barrier + stage, threads);
  }
  UNROLL
  for (int r = 0; r < 2; ++r) {
    const float total = warp_sum<4>(sum[r]);  // each lane has summed its own columns
    if (own_row[r] >= q) continue;
    ELEMENT* const to = row_of(head.o, own_row[r], head.q_step) + column;
    UNROLL
    for (int j = 0; j < D / 4; ++j)
      to[j / 2 * 8 + j % 2] = static_cast<ELEMENT>(total > 0.f ? out[j / 2][r * 2 + j % 2] / total : 0.f);
    if (column == 0) head.lse[own_row[r]] = total > 0.f ? largest[r] + logf(total) : -INFINITY;
  }
}
