// Which tiles of query rows a CTA of sm90/fwd computes, in which order, and which blocks of keys it walks for each.
//
// (batch, head) pairs are walked in sections, and within a section the tiles of the last rows come first: under a
// causal mask they have the most keys. Each CTA takes every grid-th tile of that order. Where tiles differ in length it
// takes them in turn from the left and from the right, so that a CTA with a long tile gets a short one next. The host
// chooses the width of sections.
#pragma once

#include "kernels/common/divisor.cuh"
#include "kernels/sm90/parameters.cuh"

namespace attune::device::sm90 {

struct TileOrder {
  Divisor heads;          // of a sequence
  Divisor section_tiles;  // tiles of a section
  Divisor section;        // pairs of a section
  Divisor last_section;   // pairs of the last one, which may be narrower
  int32_t whole_sections;
  int32_t tiles_m, tiles;  // of one pair, of all
};

// A block of query rows of one head.
struct Tile {
  int m, bh;

#ifdef __CUDACC_RTC__
  // The i-th tile of this CTA; false if it has none.
  template <Mask mask>
  ATTUNE_DEVICE bool load(const TileOrder& order, int i) {
    const bool from_right = mask != Mask::full && (i & 1);
    const int index = i * gridDim.x + (from_right ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (index >= order.tiles) return false;
    const int section = divide(index, order.section_tiles);
    const int rest = index - section * order.section_tiles.value;
    const Divisor& width = section < order.whole_sections ? order.section : order.last_section;
    const int column = divide(rest, width);
    bh = section * order.section.value + rest - column * width.value;
    m = order.tiles_m - 1 - column;
    return true;
  }
  ATTUNE_DEVICE int batch(const TileOrder& order) const { return divide(bh, order.heads); }
  ATTUNE_DEVICE int head(const TileOrder& order) const { return bh - batch(order) * order.heads.value; }

#endif

  ATTUNE_SHARED_CODE int first_row(int warpgroups, int warpgroup) const {
    return m * (warpgroups * rows_per_warpgroup) + warpgroup * rows_per_warpgroup;
  }
  // The keys that some row of a warpgroup sees end here.
  template <Mask mask>
  ATTUNE_SHARED_CODE int end_of_keys(const Call& call, int warpgroups, int warpgroup) const {
    return call.band.as<mask>().end(min_of(first_row(warpgroups, warpgroup + 1), call.seq_q) - 1);
  }
  // The blocks that a warpgroup walks, from the last to the first. The first warpgroup sees the first block of the
  // tile, the last one its last. Rows that see nothing walk one block all the same, which is hidden from them.
  template <Mask mask>
  ATTUNE_SHARED_CODE KeyBlocks<int, mask> walk(const Call& call, int warpgroups, int warpgroup, int block_n) const {
    const int row = first_row(warpgroups, warpgroup);
    auto blocks = blocks_of<mask>(call, row, row + rows_per_warpgroup - 1, block_n);
    blocks.end = max_of(blocks.end, blocks.begin + 1);
    return blocks;
  }
};

}  // namespace attune::device::sm90
