// What the reports planned and did not write: two producer warps and six consumer warps, 96 rows a block and 64 keys a
// tile, two stages, and blocks that stay, one for each multiprocessor of an H200: each walks over many tiles of rows,
// so that the next tile's keys are on their way while the last rows are written. Rows that see most keys come first.
// The macros below are what `attune ladder` takes away one at a time.
//
// attune kernel
// entry: attention
// threads: 256
// grid: min(ceil_div(q, 96) * h * b, 132)
// shared: (96 + 2 * 2 * 64) * d * 2
// arguments: Q, K, V, O, LSE, h, hkv, q, k, b, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef STAGES
#define STAGES 2
#endif
#ifndef SWIZZLE
#define SWIZZLE 1
#endif

constexpr int consumers = 6, own_rows = 16, rows = consumers * own_rows, keys = 64;
constexpr int threads = (PRODUCERS + consumers) * 32;
constexpr int full_barrier = 1, free_barrier = full_barrier + STAGES;
constexpr int chunks = D / 8;  // of 16 bytes, in a row

DEVICE int place(int row, int chunk) { return swizzled < chunks, SWIZZLE != 0 > (row, chunk); }

// Every tile of rows that this block computes, one after the other; `visit` is told its first row, head, and the end of
// the keys that any of its rows sees.
template <typename Visit>
DEVICE void for_each_tile(int h, int q, int k, int b, int causal, Visit visit) {
  const int row_tiles = (q + rows - 1) / rows, tiles = row_tiles * h * b;
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_row = (row_tiles - 1 - tile / (h * b)) * rows;
    visit(first_row, tile % h, tile / h % b, keys_seen(min(first_row + rows, q) - 1, q, k, causal));
  }
}

__global__ void __launch_bounds__(threads, 1)
    attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O, float* LSE, int h, int hkv, int q,
              int k, int b, float scale, int causal) {
  ELEMENT* const all_queries = shared_memory<ELEMENT>();  // [rows][D]
  ELEMENT* const tiles = all_queries + rows * D;          // [STAGES] K and V [keys][D]
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto head_at = [&](int head, int batch) { return head_of(Q, K, V, O, LSE, D, h, hkv, q, k, head, batch); };
  int step = 0;  // tiles of keys so far, over all tiles of rows: both sides count alike

  if (warp >= consumers) {
    for_each_tile(h, q, k, b, causal, [&](int, int head_index, int batch, int end) {
      const Head<ELEMENT> head = head_at(head_index, batch);
      for (int first_key = 0; first_key < end; first_key += keys, ++step) {
        const int stage = step % STAGES;
        if (step >= STAGES) barrier_sync(free_barrier + stage, threads);
        ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
        for (int i = (warp - consumers) * 32 + lane; i < keys * chunks; i += PRODUCERS * 32) {
          const int key = min(first_key + i / chunks, k - 1), at = place(i / chunks, i % chunks);
          const bool read = first_key + i / chunks < k;
          cp_async_16(key_tile + at, row_of(head.k, key, head.kv_step) + i % chunks * 8, read);
          cp_async_16(key_tile + keys * D + at, row_of(head.v, key, head.kv_step) + i % chunks * 8, read);
        }
        cp_async_commit();
        if constexpr (STAGES > 1) {
          if (step == 0) continue;
          cp_async_wait<1>();  // the tile before has arrived
          barrier_arrive(full_barrier + (step - 1) % STAGES, threads);
        } else {
          cp_async_wait<0>();
          barrier_arrive(full_barrier, threads);
        }
      }
    });
    if (STAGES == 1 || step == 0) return;
    cp_async_wait<0>();
    barrier_arrive(full_barrier + (step - 1) % STAGES, threads);
    return;
  }

  ELEMENT* const queries = all_queries + warp * own_rows * D;
  const int column = lane % 4 * 2;  // and the next one, of every block of eight
  for_each_tile(h, q, k, b, causal, [&](int first_row, int head_index, int batch, int end) {
    const Head<ELEMENT> head = head_at(head_index, batch);
    const int own_first = first_row + warp * own_rows;
    for (int i = lane; i < own_rows * chunks; i += 32) {
      const int row = own_first + i / chunks;
      ELEMENT* const to = queries + place(i / chunks, i % chunks);
      if (row < q)
        copy_16(to, row_of(head.q, row, head.q_step) + i % chunks * 8);
      else
        zero_16(to);
    }
    __syncwarp();
    unsigned query[D / 16][4];
    UNROLL
    for (int i = 0; i < D / 16; ++i) ldmatrix(query[i], queries + place(lane % 16, i * 2 + lane / 16));
    __syncwarp();  // the next tile's queries take the place of these

    const int own_row[2] = {own_first + lane / 4, own_first + lane / 4 + 8};
    const int seen[2] = {keys_seen(own_row[0], q, k, causal), keys_seen(own_row[1], q, k, causal)};
    float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, out[D / 8][4] = {};
    for (int first_key = 0; first_key < end; first_key += keys, ++step) {
      const int stage = step % STAGES;
      const ELEMENT* const key_tile = tiles + stage * 2 * keys * D;
      const ELEMENT* const value_tile = key_tile + keys * D;
      barrier_sync(full_barrier + stage, threads);
      float score[keys / 8][4] = {};
      UNROLL
      for (int i = 0; i < D / 16; ++i) {
        UNROLL
        for (int block = 0; block < keys / 8; block += 2) {
          unsigned of_keys[4];
          ldmatrix(of_keys, key_tile + place(block * 8 + lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2));
          mma_16x8x16<ELEMENT>(score[block], query[i], of_keys[0], of_keys[1]);
          mma_16x8x16<ELEMENT>(score[block + 1], query[i], of_keys[2], of_keys[3]);
        }
      }
      float now[2] = {largest[0], largest[1]}, total[2] = {0.f, 0.f}, shrink[2];
      const bool all_visible = first_key + keys <= min(seen[0], seen[1]);
      UNROLL
      for (int j = 0; j < keys / 2; ++j) {
        const int key = first_key + j / 4 * 8 + column + j % 2, r = j % 4 / 2;
        float& x = score[j / 4][j % 4];
        x = all_visible || key < seen[r] ? x * scale : -INFINITY;
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
          unsigned of_values[4];
          ldmatrix_transposed(of_values, value_tile + place(block * 8 + lane % 16, dim + lane / 16));
          mma_16x8x16<ELEMENT>(out[dim], weights, of_values[0], of_values[1]);
          mma_16x8x16<ELEMENT>(out[dim + 1], weights, of_values[2], of_values[3]);
        }
      }
      barrier_arrive(free_barrier + stage, threads);
    }
    UNROLL
    for (int r = 0; r < 2; ++r) {
      const float total = warp_sum<4>(sum[r]);
      if (own_row[r] >= q) continue;
      ELEMENT* const to = row_of(head.o, own_row[r], head.q_step) + column;
      UNROLL
      for (int j = 0; j < D / 4; ++j)
        to[j / 2 * 8 + j % 2] = static_cast<ELEMENT>(total > 0.f ? out[j / 2][r * 2 + j % 2] / total : 0.f);
      if (column == 0) head.lse[own_row[r]] = total > 0.f ? largest[r] + logf(total) : -INFINITY;
    }
  });
}
