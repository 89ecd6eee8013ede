// Which blocks of keys a tile of query rows walks, and which of them it sees whole: four integers per tile and
// warpgroup, for host and device.
//
//   begin .. whole_begin      some rows do not see all of the block, because of the window's left side
//   whole_begin .. whole_end  every row sees every key: no mask
//   whole_end .. end          some rows do not, because of the diagonal, the window's right side or the length
//
// A block may lie in the first or third part although both reasons apply to it: a mask must ask for both sides.
#pragma once

#include "kernels/attention/key_range.cuh"

namespace attune::device {

template <typename Int>
struct KeyBlocks {
  Int begin, whole_begin, whole_end, end;

  ATTUNE_SHARED_CODE Int count() const { return end - begin; }
  ATTUNE_SHARED_CODE bool is_whole(Int block) const { return block >= whole_begin && block < whole_end; }
};

// Of the rows first_row .. last_row and blocks of `block_keys`. A tile whose heads are packed into rows passes the
// positions of its first and last row.
template <typename Int>
ATTUNE_SHARED_CODE KeyBlocks<Int> key_blocks(const Band<Int>& band, Int first_row, Int last_row, Int block_keys) {
  const Int some_begin = band.begin(first_row), some_end = band.end(last_row);
  if (some_end <= some_begin) return {0, 0, 0, 0};
  KeyBlocks<Int> blocks{};
  blocks.begin = some_begin / block_keys;
  blocks.end = ceil_div(some_end, block_keys);
  blocks.whole_begin = min_of(ceil_div(band.begin(last_row), block_keys), blocks.end);
  blocks.whole_end = max_of(blocks.whole_begin, band.end(first_row) / block_keys);
  return blocks;
}

}  // namespace attune::device
