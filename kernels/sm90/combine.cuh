// Joins the results that sm90/fwd_ranged has of parts of the keys: the launch after it where keys are split. A row's
// parts are weighed by their log-sum-exps and added, the sink joins, and O and the LSE are stored. Memory limits it,
// and there is little of it: so a row with many parts is joined by several warps, each with every n-th part.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/sm90/rows.cuh"
#include "kernels/sm90/tile_plan.cuh"

namespace attune::device::sm90_combine {

using namespace attune::device::sm90;

struct Variant {
  Dtype dtype = Dtype::bf16;
};

struct Config {
  int rows = 1;  // that a CTA joins at a time
  int warps_per_row = 8;
};

struct Params {
  Call call;
  const TileCounts* counts;
  const SplitTile* tiles;
  Divisor packs;
  int32_t rows_per_tile;
};

constexpr int most_columns = 512;

template <Variant variant, Config config>
struct SharedStorage {
  float sums[config.rows][config.warps_per_row][most_columns];
};

#ifdef __CUDACC_RTC__

// The parts of a row: the first, how far apart they are, and how many.
struct Parts {
  const Call& call;
  int row_in_tile, first, stride, count;

  ATTUNE_DEVICE int64_t place(int part) const {
    return int64_t{first + part * stride} * rows_per_warpgroup + row_in_tile;
  }
  ATTUNE_DEVICE float lse_log2(int part) const {
    constexpr float log2_e = 1.44269504088896f;
    return call.part_lse[place(part)] * log2_e;
  }
};

// Of all parts: the largest log-sum-exp, to base 2, and the sum relative to it. By a whole warp.
ATTUNE_DEVICE void weigh(const Parts& parts, int lane, float& top, float& sum) {
  top = minus_infinity;
  for (int part = lane; part < parts.count; part += 32) top = fmaxf(top, parts.lse_log2(part));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
  sum = 0;
  if (top != minus_infinity)
    for (int part = lane; part < parts.count; part += 32) sum += exp2_approx(parts.lse_log2(part) - top);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const Call& call = params.call;
  const int lane = threadIdx.x % 32, packs = params.packs.value;
  const int slot = threadIdx.x / 32 / config.warps_per_row, warp = threadIdx.x / 32 % config.warps_per_row;
  grid_dependency_wait();
  const int rows = params.counts->split_tiles * packs * params.rows_per_tile;
  for (int first = blockIdx.x * config.rows; first < rows; first += gridDim.x * config.rows) {
    const int i = min_of(first + slot, rows - 1), pair = i / params.rows_per_tile;
    const int row_in_tile = i - pair * params.rows_per_tile, entry = divide(pair, params.packs);
    const SplitTile& split = params.tiles[entry];
    Tile tile{};
    tile.batch = split.batch;
    tile.first_q = split.first_q;
    tile.position = split.position;
    tile.rows_used = split.rows_used;
    tile.head = pair - entry * packs;
    const Row row(call, tile, 0, row_in_tile);
    const bool stored = row.position < split.rows_stored && first + slot < rows;
    const Parts parts{call, row_in_tile, split.first_part * packs + tile.head, packs, stored ? split.parts : 0};
    float top, sum;
    weigh(parts, lane, top, sum);
    const RowEnd end(top, sum, stored ? sink_of(call, tile, row) : nullptr);
    if (stored && warp == 0 && lane == 0 && call.lse != nullptr)
      call.lse[tile.batch * call.lse_batch_stride + row.head * call.lse_head_stride +
               (tile.first_q + row.position) * call.lse_row_stride] = end.lse;

    // Each lane has two neighbouring columns of 64. A row that saw no key has zeros, whatever its parts hold.
    float* own = shared.sums[slot][warp];
    for (int column = 2 * lane; column < call.dim_v; column += 64) {
      float x = 0, y = 0;
#pragma unroll 4
      for (int part = warp; part < (end.inverse == 0.f ? 0 : parts.count); part += config.warps_per_row) {
        const float* in = call.part_o + parts.place(part) * call.dim_v + column;
        const float weight = exp2_approx(parts.lse_log2(part) - top) * end.inverse;
        x += weight * in[0];
        y += weight * in[1];
      }
      own[column] = x;
      own[column + 1] = y;
    }
    __syncthreads();
    if (stored) {
      auto* out = reinterpret_cast<uint32_t*>(output_row(call, tile, row));
      for (int column = 2 * (warp * 32 + lane); column < call.dim_v; column += 64 * config.warps_per_row) {
        float x = 0, y = 0;
        for (int from = 0; from < config.warps_per_row; ++from) {
          x += shared.sums[slot][from][column];
          y += shared.sums[slot][from][column + 1];
        }
        out[column / 2] = pack<variant.dtype>(x, y);
      }
    }
    __syncthreads();
  }
}

#endif

}  // namespace attune::device::sm90_combine
