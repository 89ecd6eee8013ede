// Which keys a row sees, by causality, window and length: one rule for host and device. The references have their own
// (core/visibility.hpp, kernels/any/reference.cuh), so that a mistake here does not judge itself.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

// Where the diagonal lies. The values are those of attune_causal.
enum class Alignment : int32_t { none = 0, top_left = 1, bottom_right = 2 };

// What a call says of rows and keys, before lengths are known. A window of -1 is unbounded.
struct Visibility {
  Alignment causal;
  int64_t window_left, window_right;
};

// What a kernel is compiled for: a side that a mask does not have costs it nothing.
enum class Mask : int32_t {
  full,    // every row sees every key
  causal,  // rows see all keys up to an end of their own
  ranged   // rows see keys from a begin of their own to an end of their own
};

// The keys that rows of one sequence see: row i sees begin(i) .. end(i) - 1. Both ends rise with the row, so the rows
// of a tile together see begin(first) .. end(last) - 1, and each of them sees begin(last) .. end(first) - 1.
//
// `lower` and `upper` are distances from the row. An unbounded side lies so far off that no row reaches it; nothing
// here overflows as long as rows + keys fit into Int.
template <typename Int, Mask mask = Mask::ranged>
struct Band {
  Int lower, upper, keys;

  ATTUNE_SHARED_CODE Int begin(Int row) const {
    return mask == Mask::ranged ? max_of<Int>(0, min_of(keys, row + lower)) : 0;
  }
  ATTUNE_SHARED_CODE Int end(Int row) const {
    return mask == Mask::full ? keys : max_of<Int>(0, min_of(keys, row + upper));
  }

  // For a kernel that is compiled for less.
  template <Mask narrower>
  ATTUNE_SHARED_CODE Band<Int, narrower> as() const {
    return {lower, upper, keys};
  }
};

template <typename Int>
ATTUNE_SHARED_CODE Band<Int> band_of(const Visibility& visibility, int64_t rows, int64_t keys) {
  // Wider than any distance between a row and a key: as good as unbounded, and sums of it fit.
  const int64_t wide = rows + keys;
  const int64_t diagonal = visibility.causal == Alignment::top_left ? 0 : keys - rows;
  int64_t lower = -rows, upper = keys;
  if (visibility.window_left >= 0) lower = max_of(lower, diagonal - min_of(visibility.window_left, wide));
  if (visibility.window_right >= 0) upper = min_of(upper, diagonal + min_of(visibility.window_right, wide) + 1);
  if (visibility.causal != Alignment::none) upper = min_of(upper, diagonal + 1);
  return {static_cast<Int>(min_of(lower, keys)), static_cast<Int>(max_of(upper, -rows)), static_cast<Int>(keys)};
}

// The least mask that a band of `rows` rows needs.
template <typename Int>
ATTUNE_SHARED_CODE Mask mask_of(const Band<Int>& band, Int rows) {
  if (rows > 0 && band.begin(rows - 1) > 0) return Mask::ranged;
  return rows > 0 && band.end(0) < band.keys ? Mask::causal : Mask::full;
}

}  // namespace attune::device
