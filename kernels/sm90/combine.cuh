// Joins the results that sm90/fwd_ranged has of parts of the keys: the launch after it where keys are split. A warp
// takes a row: it weighs the parts by their log-sum-exps, adds them in their order, lets the sink join, and stores O
// and the LSE. Memory limits it, and there is little of it.
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
  int warps = 4;
};

struct Params {
  Call call;
  const TileCounts* counts;
  const SplitTile* tiles;
  Divisor packs;
  int32_t rows_per_tile;
};

template <Variant variant, Config config>
struct SharedStorage {};

#ifdef __CUDACC_RTC__

// O of a row: each lane holds two neighbouring columns of 64.
template <Dtype dtype>
ATTUNE_DEVICE void join_row(const Call& call, const Tile& tile, const Row& row, int first_part, int stride, int parts,
                            int lane) {
  constexpr float log2_e = 1.44269504088896f;
  const auto lse_of = [&](int part) {
    return call.part_lse[(first_part + part * stride) * rows_per_warpgroup + row.in_tile] * log2_e;
  };
  float top = minus_infinity;
  for (int part = lane; part < parts; part += 32) top = fmaxf(top, lse_of(part));
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, distance));
  float sum = 0;
  if (top != minus_infinity)
    for (int part = 0; part < parts; ++part) sum += exp2_approx(lse_of(part) - top);
  const RowEnd end(top, sum, sink_of(call, tile, row));
  if (lane == 0 && call.lse != nullptr)
    call.lse[tile.batch * call.lse_batch_stride + row.head * call.lse_head_stride +
             (tile.first_q + row.position) * call.lse_row_stride] = end.lse;

  auto* out = reinterpret_cast<uint32_t*>(output_row(call, tile, row));
  for (int column = 2 * lane; column < call.dim_v; column += 64) {
    float x = 0, y = 0;
    if (end.inverse != 0.f) {
      for (int part = 0; part < parts; ++part) {
        const float* in = call.part_o +
                          (int64_t{first_part + part * stride} * rows_per_warpgroup + row.in_tile) * call.dim_v +
                          column;
        const float weight = exp2_approx(lse_of(part) - top) * end.inverse;
        x += weight * in[0];
        y += weight * in[1];
      }
    }
    out[column / 2] = pack<dtype>(x, y);
  }
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  const int lane = threadIdx.x % 32, packs = params.packs.value;
  grid_dependency_wait();
  const int rows = params.counts->split_tiles * packs * params.rows_per_tile;
  for (int i = blockIdx.x * config.warps + threadIdx.x / 32; i < rows; i += gridDim.x * config.warps) {
    const int pair = i / params.rows_per_tile, row_in_tile = i - pair * params.rows_per_tile;
    const int entry = divide(pair, params.packs);
    const SplitTile& split = params.tiles[entry];
    Tile tile{};
    tile.batch = split.batch;
    tile.first_q = split.first_q;
    tile.position = split.position;
    tile.rows_used = split.rows_used;
    tile.head = pair - entry * packs;
    const Row row(params.call, tile, 0, row_in_tile);
    if (row.position < split.rows_stored)
      join_row<variant.dtype>(params.call, tile, row, split.first_part * packs + tile.head, packs, split.parts, lane);
  }
}

#endif

}  // namespace attune::device::sm90_combine
