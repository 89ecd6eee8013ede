// Lists the tiles of query rows that exist, those that walk most keys first: the launch before sm90/fwd_ranged where
// lengths live on the device or keys are split, one CTA. So that kernel spends no time on tiles that only the longest
// sequence has, and its CTAs end together.
//
// A boolean mask that speaks of keys alone, as that of a padded batch does, is looked at here: no tile walks keys
// before the first or after the last that it shows, and where it shows all between them nobody asks it again.
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
#include "kernels/sm90/score_tensor.cuh"
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
  ScoreTensor key_mask;  // one that is the same for all heads and rows; null: none, or of another kind
  int32_t has_terms;     // a bias, or a mask of another kind
  int32_t batch, packs;  // packs: of heads of a sequence
  int32_t tile_positions, block_n;
  int32_t cost_shift;    // so many bits of the number of blocks do not count for the order
  int32_t wanted_tiles;  // of all packs, after they were cut; 0: none is cut
  int32_t least_blocks;  // of a part
  // How many there is room for: enough for lengths that are what the descriptor promises, and for others no more is
  // listed.
  int32_t most_tiles, most_split_tiles, most_parts;
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

// The keys that a mask shows of a sequence: the first, the one after the last, and how many.
struct ShownKeys {
  int begin, end, count;
};

// By a whole warp.
ATTUNE_DEVICE ShownKeys shown_keys(const ScoreTensor& mask, int sequence, int keys, int lane) {
  const uint8_t* shows = static_cast<const uint8_t*>(mask.data) + sequence * mask.batch_stride;
  ShownKeys shown{keys, 0, 0};
  for (int key = lane; key < keys; key += 32) {
    if (shows[key * mask.key_stride] == 0) continue;
    shown.begin = min_of(shown.begin, key);
    shown.end = key + 1;
    ++shown.count;
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    shown.begin = min_of(shown.begin, __shfl_xor_sync(0xffffffffu, shown.begin, distance));
    shown.end = max_of(shown.end, __shfl_xor_sync(0xffffffffu, shown.end, distance));
    shown.count += __shfl_xor_sync(0xffffffffu, shown.count, distance);
  }
  return shown;
}

// Leaves out the keys at both ends that the mask hides. Keys that are left out at the front move the others.
ATTUNE_DEVICE void look_at_mask(const Params& params, int sequence, int lane, ListedTile& tile) {
  const ShownKeys shown = shown_keys(params.key_mask, sequence, tile.band.keys, lane);
  tile.band.keys = shown.end;
  if (params.has_terms || (shown.count > 0 && shown.count != shown.end - shown.begin)) {
    tile.has_terms = 1;
    return;
  }
  const int left_out = shown.count == 0 ? 0 : shown.begin;
  tile.first_k += left_out;
  tile.band = {tile.band.lower - left_out, tile.band.upper - left_out, shown.count};
}

// A tile, and which blocks it walks.
struct Walk {
  ListedTile tile;
  int begin, count;
};

// Calls visit(walk, first, step) with every tile: a warp takes a sequence, and its lanes take tiles, or where tiles are
// cut, which are few then, every 32nd part of each tile.
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
    tile.has_terms = params.has_terms;
    tile.band = band_of<int32_t>(params.visibility, tile.rows_used, rows.seq_q == 0 ? 0 : rows.seq_k);
    if (params.key_mask.data != nullptr) look_at_mask(params, b, lane, tile);
    const int end_row = max_of(tile.rows_used - 1, 0);
    const bool cuts = params.wanted_tiles > 0;
    for (int m = cuts ? 0 : lane; m * params.tile_positions < tile.rows_stored; m += cuts ? 1 : 32) {
      tile.position = m * params.tile_positions;
      const int first = min_of(tile.position, end_row);
      const int last = min_of(tile.position + params.tile_positions - 1, end_row);
      const auto blocks = key_blocks(tile.band, first, last, params.block_n);
      walk.begin = blocks.begin;
      walk.count = blocks.count();
      visit(walk, cuts ? lane : 0, cuts ? 32 : 1);
    }
  }
}

// How many blocks a part has at most.
ATTUNE_DEVICE int64_t part_blocks(const Params& params, uint64_t blocks) {
  if (params.wanted_tiles == 0) return int64_t{1} << 40;
  const int64_t fair = static_cast<int64_t>((blocks * params.packs + params.wanted_tiles - 1) / params.wanted_tiles);
  return max_of<int64_t>(fair, params.least_blocks);
}

ATTUNE_DEVICE int parts_of(const Walk& walk, int64_t most_blocks) {
  return max_of(static_cast<int>(ceil_div<int64_t>(walk.count, most_blocks)), 1);
}

// Tiles and parts of so many blocks; bins count from the longest.
ATTUNE_DEVICE int bin_of(const Params& params, const Walk& walk, int parts) {
  return bins - 1 - min_of(walk.count / parts >> params.cost_shift, bins - 1);
}

// Makes a place for the parts of a tile and returns the first of them, or -1 if there is no room.
ATTUNE_DEVICE int start_split(const Params& params, int32_t& next_part, int32_t& next_split_tile,
                              const ListedTile& tile, int parts) {
  const int first_part = shared_add(&next_part, parts), place = shared_add(&next_split_tile, 1);
  if (first_part + parts > params.most_parts || place >= params.most_split_tiles) return -1;
  params.split_tiles[place] = {tile.batch,       tile.first_q, tile.position, tile.rows_used,
                               tile.rows_stored, first_part,   parts,         0};
  return first_part;
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
    for_each_tile<config>(params, [&](const Walk& walk, int first, int) {
      if (first == 0) shared_add(&shared.blocks, uint64_t(walk.count));
    });
    __syncthreads();
  }
  const int64_t most_blocks = part_blocks(params, shared.blocks);
  for_each_tile<config>(params, [&](const Walk& walk, int first, int step) {
    const int parts = parts_of(walk, most_blocks);
    for (int i = first; i < parts; i += step) shared_add(&shared.first[bin_of(params, walk, parts)], 1);
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
  if (bin == bins - 1) params.counts->tiles = min_of(shared.first[bin], params.most_tiles);
  __syncthreads();
  shared.first[bin] -= own;
  __syncthreads();

  for_each_tile<config>(params, [&](const Walk& walk, int first, int step) {
    const int parts = parts_of(walk, most_blocks);
    int first_part = -1;
    if (parts > 1) {  // lanes have the same tile
      if (first == 0) first_part = start_split(params, shared.next_part, shared.next_split_tile, walk.tile, parts);
      first_part = __shfl_sync(0xffffffffu, first_part, 0);
    }
    for (int i = first; i < parts; i += step) {
      ListedTile tile = walk.tile;
      tile.part = -1;
      if (first_part >= 0) {
        tile.part = first_part + i;
        tile.begin_block = walk.begin + static_cast<int>(int64_t{walk.count} * i / parts);
        tile.end_block = walk.begin + static_cast<int>(int64_t{walk.count} * (i + 1) / parts);
      } else if (i > 0) {
        tile.rows_used = tile.rows_stored = tile.band.keys = 0;  // the first part is the whole tile
      }
      const int place = shared_add(&shared.first[bin_of(params, walk, parts)], 1);
      if (place < params.most_tiles) params.tiles[place] = tile;
    }
  });
  __syncthreads();
  if (bin == 0) params.counts->split_tiles = min_of(shared.next_split_tile, params.most_split_tiles);
}

#endif

}  // namespace attune::device::sm90_tile_list
