// Lists the tiles of query rows that exist, those that walk most keys first: the launch before sm90/fwd_ranged where
// lengths live on the device or keys are split, one CTA. So that kernel spends no time on tiles that only the longest
// sequence has, and its CTAs end together.
//
// Where rows are few and keys many, a tile is cut into parts of about equal length, so many that every SM has work. How
// it is cut depends on the problem and its lengths alone.
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
  int32_t batch, packs;  // packs: of heads of a sequence
  int32_t tile_positions, block_n;
  int32_t cost_shift;    // so many bits of the number of blocks do not count for the order
  int32_t wanted_tiles;  // of all packs, after they were cut; 0: none is cut
  int32_t least_blocks;  // of a part
  TileCounts* counts;
  ListedTile* tiles;
  SplitTile* split_tiles;
};

constexpr int bins = 1024;

template <Variant variant, Config config>
struct SharedStorage {
  uint64_t blocks;      // of all tiles of one pack
  int32_t first[bins];  // place of the first tile of each length, longest first
  int32_t next_part, next_split_tile;
};

#ifdef __CUDACC_RTC__

// A tile, and which blocks it walks.
struct Walk {
  ListedTile tile;
  int begin, count;
};

// Calls visit(walk) with every tile: a warp takes a sequence, its lanes take tiles.
template <Config config, typename Visit>
ATTUNE_DEVICE void for_each_tile(const Params& params, Visit visit) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int b = warp; b < params.batch; b += config.warps) {
    const SequenceRows rows = sequence_rows(params.lengths, b);
    Walk walk{};
    ListedTile& tile = walk.tile;
    tile.batch = params.lengths.cu_seqlens_q != nullptr ? 0 : b;
    tile.sequence = b;
    tile.first_q = static_cast<int32_t>(rows.first_row_q);
    tile.first_k = static_cast<int32_t>(rows.first_row_k);
    tile.rows_used = static_cast<int32_t>(rows.seq_q);
    tile.rows_stored = static_cast<int32_t>(rows.stored_q);
    tile.keys = rows.seq_q == 0 ? 0 : static_cast<int32_t>(rows.seq_k);
    const auto band = band_of<int32_t>(params.visibility, tile.rows_used, tile.keys);
    const int end_row = max_of(tile.rows_used - 1, 0);
    for (int m = lane; m * params.tile_positions < tile.rows_stored; m += 32) {
      tile.position = m * params.tile_positions;
      const int first = min_of(tile.position, end_row);
      const int last = min_of(tile.position + params.tile_positions - 1, end_row);
      const auto blocks = key_blocks(band, first, last, params.block_n);
      walk.begin = blocks.begin;
      walk.count = blocks.count();
      visit(walk);
    }
  }
}

// How many blocks a part has at most.
ATTUNE_DEVICE int64_t part_blocks(const Params& params, uint64_t blocks) {
  if (params.wanted_tiles == 0) return int64_t{1} << 40;
  const int64_t fair = static_cast<int64_t>((blocks * params.packs + params.wanted_tiles - 1) / params.wanted_tiles);
  return max_of<int64_t>(fair, params.least_blocks);
}

// Calls visit(bin, i, parts) with every part of a tile; `bin` counts from the longest.
template <typename Visit>
ATTUNE_DEVICE void for_each_part(const Params& params, const Walk& walk, int64_t most_blocks, Visit visit) {
  const int parts = max_of(static_cast<int>(ceil_div<int64_t>(walk.count, most_blocks)), 1);
  const int bin = bins - 1 - min_of(walk.count / parts >> params.cost_shift, bins - 1);
  for (int i = 0; i < parts; ++i) visit(bin, i, parts);
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int bin = threadIdx.x;
  static_assert(config.warps * 32 == bins, "a thread for each bin");
  grid_dependency_launch();
  shared.first[bin] = 0;
  if (bin == 0) shared.blocks = 0, shared.next_part = shared.next_split_tile = 0;
  __syncthreads();
  if (params.wanted_tiles > 0) {
    for_each_tile<config>(params, [&](const Walk& walk) { shared_add(&shared.blocks, uint64_t(walk.count)); });
    __syncthreads();
  }
  const int64_t most_blocks = part_blocks(params, shared.blocks);
  for_each_tile<config>(params, [&](const Walk& walk) {
    for_each_part(params, walk, most_blocks, [&](int of, int, int) { shared_add(&shared.first[of], 1); });
  });
  __syncthreads();

  // How many there are up to each bin, in doubling steps.
  const int own = shared.first[bin];
  for (int distance = 1; distance < bins; distance *= 2) {
    const int before = bin >= distance ? shared.first[bin - distance] : 0;
    __syncthreads();
    shared.first[bin] += before;
    __syncthreads();
  }
  if (bin == bins - 1) params.counts->tiles = shared.first[bin];
  __syncthreads();
  shared.first[bin] -= own;
  __syncthreads();

  for_each_tile<config>(params, [&](const Walk& walk) {
    int first_part = -1;
    for_each_part(params, walk, most_blocks, [&](int of, int i, int parts) {
      ListedTile tile = walk.tile;
      tile.part = -1;
      if (parts > 1) {
        if (i == 0) {
          first_part = shared_add(&shared.next_part, parts);
          params.split_tiles[shared_add(&shared.next_split_tile, 1)] = {
              tile.batch, tile.first_q, tile.position, tile.rows_used, tile.rows_stored, first_part, parts, 0};
        }
        tile.part = first_part + i;
        tile.begin_block = walk.begin + static_cast<int>(int64_t{walk.count} * i / parts);
        tile.end_block = walk.begin + static_cast<int>(int64_t{walk.count} * (i + 1) / parts);
      }
      params.tiles[shared_add(&shared.first[of], 1)] = tile;
    });
  });
  __syncthreads();
  if (bin == 0) params.counts->split_tiles = shared.next_split_tile, params.counts->parts = shared.next_part;
}

#endif

}  // namespace attune::device::sm90_tile_list
