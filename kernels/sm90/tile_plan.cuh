// Which tiles of query rows a CTA of sm90/fwd_ranged computes, and in which order.
//
// Each CTA takes every grid-th tile of one order, in turn from the left and from the right, so that a CTA with a long
// tile gets a short one next. There are two such orders:
//
//   TileOrder   lengths that the host knows: pairs are walked in sections, and within a section the tiles of the last
//               rows come first, since under a causal mask they have the most keys
//   TileList    lengths that live on the device, and keys that are split: tile_list.cuh has listed the tiles that
//               there are, longest first, and each is computed for all packs of heads
//
// A pair is a sequence and a pack of its heads.
#pragma once

#include "kernels/common/divisor.cuh"
#include "kernels/sm90/tile.cuh"

namespace attune::device::sm90 {

struct TileOrder {
  Divisor packs;          // of heads of a sequence
  Divisor section_tiles;  // tiles of a section
  Divisor section;        // pairs of a section
  Divisor last_section;   // pairs of the last one, which may be narrower
  int32_t whole_sections;
  int32_t tiles_m, tiles;  // of one pair, of all
  int32_t seq_q;
  Band<int32_t> band;
};

// A tile of some sequence, for every pack of its heads, or a part of one: blocks begin_block .. end_block - 1.
struct alignas(16) ListedTile {
  int32_t batch, sequence, first_q, first_k, position, rows_used, rows_stored, has_terms;
  Band<int32_t> band;
  int32_t part;  // -1: the tile has all of its keys
  int32_t begin_block, end_block;
  int32_t unused[2];
};

// A tile whose keys are split: what its parts are joined to.
struct alignas(16) SplitTile {
  int32_t batch, first_q, position, rows_used, rows_stored;
  int32_t first_part, parts;
  int32_t unused;
};

struct TileCounts {
  int32_t tiles, split_tiles, unused[2];
};

struct TileList {
  const TileCounts* counts;
  const ListedTile* tiles;
  Divisor packs;
};

struct Plan {
  TileOrder order;  // one of both is in use
  TileList list;
  Divisor packs_per_head_kv;
};

#ifdef __CUDACC_RTC__

// The place of this CTA's i-th tile in the order. Tiles of equal length need not be taken from both sides.
ATTUNE_DEVICE int place_of(int i, bool from_both_sides) {
  const bool from_right = from_both_sides && (i & 1);
  return i * gridDim.x + (from_right ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}

// The i-th tile of this CTA, but for its blocks; false if it has none.
template <Mask mask>
ATTUNE_DEVICE bool find_tile(const TileOrder& order, int i, int tile_positions, Tile& tile) {
  const int index = place_of(i, mask != Mask::full);
  if (index >= order.tiles) return false;
  const int section = divide(index, order.section_tiles);
  const int rest = index - section * order.section_tiles.value;
  const Divisor& width = section < order.whole_sections ? order.section : order.last_section;
  const int column = divide(rest, width);
  const int pair = section * order.section.value + rest - column * width.value;
  tile.batch = tile.sequence = divide(pair, order.packs);
  tile.head = pair - tile.batch * order.packs.value;
  tile.first_q = tile.first_k = 0;
  tile.position = (order.tiles_m - 1 - column) * tile_positions;
  tile.rows_used = tile.rows_stored = order.seq_q;
  tile.band = order.band;
  tile.has_terms = 1;
  tile.part = -1;
  return true;
}

ATTUNE_DEVICE bool find_tile(const TileList& list, int i, ListedTile& listed, Tile& tile) {
  const int index = place_of(i, true);
  const int entry = divide(index, list.packs);
  if (entry >= list.counts->tiles) return false;
  listed = list.tiles[entry];
  tile.batch = listed.batch;
  tile.sequence = listed.sequence;
  tile.head = index - entry * list.packs.value;
  tile.first_q = listed.first_q;
  tile.first_k = listed.first_k;
  tile.position = listed.position;
  tile.rows_used = listed.rows_used;
  tile.rows_stored = listed.rows_stored;
  tile.band = listed.band;
  tile.has_terms = listed.has_terms;
  tile.part = listed.part < 0 ? -1 : listed.part * static_cast<int>(list.packs.value) + tile.head;
  return true;
}

#endif

}  // namespace attune::device::sm90
