// Lists the tiles of query rows that exist when the lengths of sequences live on the device, those that walk most keys
// first: the launch before sm90/fwd_ranged, one CTA. So that kernel spends no time on tiles that only the longest
// sequence has, and its CTAs end together.
//
// A counting sort: tiles are counted by the blocks of keys they walk, and then written behind all longer ones. Tiles of
// equal length may change places from run to run. The results do not depend on their order.
#pragma once

#include "kernels/attention/sequence.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/shared_atomics.cuh"
#include "kernels/sm90/tile_plan.cuh"

namespace attune::device::sm90_tile_list {

using namespace attune::device::sm90;

struct Variant {};

struct Config {
  int warps = 32;
};

struct Params {
  SequenceLengths lengths;
  Visibility visibility;
  int32_t batch, tile_rows, block_n;
  int32_t cost_shift;  // so many bits of the number of blocks do not count
  int32_t* count;
  ListedTile* tiles;
};

constexpr int bins = 1024;

template <Variant variant, Config config>
struct SharedStorage {
  int32_t first[bins];  // place of the first tile of each length, longest first
};

#ifdef __CUDACC_RTC__

// Calls visit(bin, tile) with every tile: a warp takes a sequence, its lanes take tiles.
template <Config config, typename Visit>
ATTUNE_DEVICE void for_each_tile(const Params& params, Visit visit) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int b = warp; b < params.batch; b += config.warps) {
    const SequenceRows rows = sequence_rows(params.lengths, b);
    ListedTile tile{};
    tile.batch = params.lengths.cu_seqlens_q != nullptr ? 0 : b;
    tile.first_q = static_cast<int32_t>(rows.first_row_q);
    tile.first_k = static_cast<int32_t>(rows.first_row_k);
    tile.rows_used = static_cast<int32_t>(rows.seq_q);
    tile.rows_stored = static_cast<int32_t>(rows.stored_q);
    tile.keys = rows.seq_q == 0 ? 0 : static_cast<int32_t>(rows.seq_k);
    const auto band = band_of<int32_t>(params.visibility, tile.rows_used, tile.keys);
    const int end_row = max_of(tile.rows_used - 1, 0);
    for (int m = lane; m * params.tile_rows < tile.rows_stored; m += 32) {
      tile.row = m * params.tile_rows;
      const int first = min_of(tile.row, end_row), last = min_of(tile.row + params.tile_rows - 1, end_row);
      const int cost = key_blocks(band, first, last, params.block_n).count() >> params.cost_shift;
      visit(bins - 1 - min_of(cost, bins - 1), tile);
    }
  }
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int bin = threadIdx.x;
  static_assert(config.warps * 32 == bins, "a thread for each bin");
  grid_dependency_launch();
  shared.first[bin] = 0;
  __syncthreads();
  for_each_tile<config>(params, [&](int of, const ListedTile&) { shared_add(&shared.first[of], 1); });
  __syncthreads();

  // How many there are up to each bin, in doubling steps.
  const int own = shared.first[bin];
  for (int distance = 1; distance < bins; distance *= 2) {
    const int before = bin >= distance ? shared.first[bin - distance] : 0;
    __syncthreads();
    shared.first[bin] += before;
    __syncthreads();
  }
  if (bin == bins - 1) *params.count = shared.first[bin];
  __syncthreads();
  shared.first[bin] -= own;
  __syncthreads();
  for_each_tile<config>(params, [&](int of, const ListedTile& tile) {
    params.tiles[shared_add(&shared.first[of], 1)] = tile;
  });
}

#endif

}  // namespace attune::device::sm90_tile_list
