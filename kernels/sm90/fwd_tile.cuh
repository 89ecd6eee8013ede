// The tiles of sm90/fwd: which of them a CTA computes, and how many blocks of keys each walks.
#pragma once

#include "kernels/sm90/fwd_storage.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd {

// A block of query rows of one head.
template <Variant variant, Config config>
struct Tile {
  int m, bh;

  static constexpr int rows = tile_rows(config);

  // The i-th tile of this CTA; false if it has none.
  ATTUNE_DEVICE bool load(const Params& params, int i) {
    // Rows of the schedule alternate their direction, so that a CTA with a long tile gets a short one next.
    const int index = i * gridDim.x + ((variant.causal && (i & 1)) ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (index >= params.tiles) return false;
    const int section = divide(index, params.section_tiles);
    const int rest = index - section * params.section_tiles.value;
    const Divisor& width = section < params.whole_sections ? params.section : params.last_section;
    const int column = divide(rest, width);
    bh = section * params.section.value + rest - column * width.value;
    m = params.tiles_m - 1 - column;
    return true;
  }
  ATTUNE_DEVICE int batch(const Params& params) const { return divide(bh, params.heads); }
  ATTUNE_DEVICE int head(const Params& params) const { return bh - batch(params) * params.heads.value; }

  // Keys that some row of the warpgroup sees.
  ATTUNE_DEVICE int seen_keys(const Params& params, int warpgroup) const {
    return params.keys.seen_before<variant.causal>(m * rows + (warpgroup + 1) * rows_per_warpgroup);
  }
  ATTUNE_DEVICE int blocks(const Params& params, int warpgroup) const {
    return max_of(1, ceil_div(seen_keys(params, warpgroup), config.block_n));
  }
};

}  // namespace attune::device::sm90_fwd
#endif
