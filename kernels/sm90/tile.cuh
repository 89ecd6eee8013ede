// What a tile of query rows is: whose rows they are, and which blocks of keys each warpgroup walks. One lane plans
// tiles (tile_plan.cuh); every other role reads them from shared memory.
#pragma once

#include "kernels/attention/key_blocks.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::sm90 {

constexpr int rows_per_warpgroup = 64;
constexpr int most_warpgroups = 4;

struct alignas(16) Tile {
  int32_t head, head_kv, batch;      // as the tensor maps count them; a head of -1 ends the CTA's tiles
  int32_t first_q, first_k;          // the sequence's first row and key, in rows of the tensors
  int32_t row;                       // of the sequence: the tile's first
  int32_t rows_used, rows_stored;    // of the sequence; rows from rows_used on see no key
  Band<int32_t> band;                // which keys the rows of the sequence see
  KeyBlocks<int32_t> blocks[most_warpgroups];

  ATTUNE_SHARED_CODE int first_row(int warpgroup) const { return row + warpgroup * rows_per_warpgroup; }

  // Blocks of keys for rows that are known. The first warpgroup sees the first block of the tile, the last one its
  // last. Rows that see nothing walk one block all the same, which is hidden from them, and rows past the end of a
  // sequence walk what its last row does.
  template <Mask mask>
  ATTUNE_SHARED_CODE void set_blocks(int warpgroups, int block_n) {
    const int end_row = max_of(rows_used - 1, 0);
    for (int w = 0; w < warpgroups; ++w) {
      const int first = min_of(first_row(w), end_row), last = min_of(first_row(w + 1) - 1, end_row);
      const auto walk = key_blocks(band.as<mask>(), first, last, block_n);
      blocks[w] = {walk.begin, walk.whole_begin, walk.whole_end, max_of(walk.end, walk.begin + 1)};
    }
  }
};

}  // namespace attune::device::sm90
