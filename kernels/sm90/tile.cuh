// What a tile of query rows is: whose rows they are, and which blocks of keys each 64 of them walk. One lane plans
// tiles (tile_plan.cuh); every other role reads them from shared memory.
//
// A warpgroup has 64 rows. Where few positions of a sequence are asked for, the heads that share K and V are rows of
// one tile: row r is the position r / pack of head r % pack. Otherwise pack is 1, and rows are positions.
#pragma once

#include "kernels/attention/key_blocks.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::sm90 {

constexpr int rows_per_warpgroup = 64;
constexpr int most_row_groups = 4;

struct Pack {
  int32_t log2;

  ATTUNE_SHARED_CODE int heads() const { return 1 << log2; }
  ATTUNE_SHARED_CODE int position(int row) const { return row >> log2; }
  ATTUNE_SHARED_CODE int head(int row) const { return row & (heads() - 1); }
  ATTUNE_SHARED_CODE int positions_per_warpgroup() const { return rows_per_warpgroup >> log2; }
};

struct alignas(16) Tile {
  int32_t head, head_kv, batch;    // as the tensor maps count them, of q in packs; a head of -1 ends the CTA's tiles
  int32_t sequence;                // of all sequences, as bias and mask count them
  int32_t first_q, first_k;        // the sequence's first row and key, in rows of the tensors
  int32_t position;                // of the sequence: the tile's first
  int32_t rows_used, rows_stored;  // of the sequence; positions from rows_used on see no key
  int32_t has_terms;               // 0: neither bias nor mask has anything to say of the tile
  int32_t part;                    // where the result of a part of the keys goes; -1: the tile has all of them
  Band<int32_t> band;              // which keys the positions of the sequence see
  KeyBlocks<int32_t> blocks[most_row_groups];

  ATTUNE_SHARED_CODE int first_position(Pack pack, int row_group) const {
    return position + row_group * pack.positions_per_warpgroup();
  }

  // Blocks of keys for positions that are known. The first group of rows sees the first block of the tile, the last one
  // its last. Rows that see nothing walk one block all the same, which is hidden from them, and rows past the end of a
  // sequence walk what its last row does.
  template <Mask mask>
  ATTUNE_SHARED_CODE void set_blocks(Pack pack, int groups, int block_n) {
    const int end_row = max_of(rows_used - 1, 0);
    for (int w = 0; w < groups; ++w) {
      const int first = min_of(first_position(pack, w), end_row),
                last = min_of(first_position(pack, w + 1) - 1, end_row);
      const auto walk = key_blocks(band.as<mask>(), first, last, block_n);
      blocks[w] = {walk.begin, walk.whole_begin, walk.whole_end, max_of(walk.end, walk.begin + 1)};
    }
  }

  // Only blocks begin .. end - 1 of those that the one group of rows of a tile sees.
  ATTUNE_SHARED_CODE void restrict_blocks(int begin, int end) {
    KeyBlocks<int32_t>& walk = blocks[0];
    walk.begin = max_of(walk.begin, begin);
    walk.end = min_of(walk.end, end);
    walk.whole_begin = max_of(walk.whole_begin, walk.begin);
    walk.whole_end = min_of(walk.whole_end, walk.end);
  }
};

}  // namespace attune::device::sm90
