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

template <typename Int, Mask mask = Mask::ranged>
struct KeyBlocks {
  Int begin, whole_begin, whole_end, end;

  ATTUNE_SHARED_CODE Int count() const { return end - begin; }
  ATTUNE_SHARED_CODE bool is_whole(Int block) const {
    return (mask != Mask::ranged || block >= whole_begin) && block < whole_end;
  }
};

// Of the rows first_row .. last_row and blocks of `block_keys`. A tile whose heads are packed into rows passes the
// positions of its first and last row. Rows that see nothing have no blocks; where these would lie rises with the rows
// all the same, and is a block that exists.
template <typename Int, Mask mask>
ATTUNE_SHARED_CODE KeyBlocks<Int, mask> key_blocks(const Band<Int, mask>& band, Int first_row, Int last_row,
                                                   Int block_keys) {
  const Int some_begin = band.begin(first_row), some_end = band.end(last_row);
  if constexpr (mask != Mask::ranged) return {0, 0, band.end(first_row) / block_keys, ceil_div(some_end, block_keys)};
  const Int begin = min_of(some_begin, max_of<Int>(band.keys - 1, 0)) / block_keys;
  if (some_end <= some_begin) return {begin, begin, begin, begin};
  const Int end = ceil_div(some_end, block_keys);
  const Int whole_begin = min_of(ceil_div(band.begin(last_row), block_keys), end);
  return {begin, whole_begin, max_of(whole_begin, band.end(first_row) / block_keys), end};
}

}  // namespace attune::device
