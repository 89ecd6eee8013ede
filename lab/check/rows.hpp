// Which rows of the output are compared with float64: all of them while that is affordable, else a sample.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "lab/check/tensors.hpp"

namespace attune::lab {

struct RowId {
  int64_t batch = 0, head = 0, row = 0;  // row within its sequence
  auto operator<=>(const RowId&) const = default;
};

struct RowPolicy {
  double all_rows_flops = 0x1p33;  // useful work up to which every row is compared
  int64_t sampled_rows = 512;
  // Useful work up to which every compared row is compared with Ideal too, and not only a sample of them. Ideal runs on
  // the CPU; a device may afford the float64 reference of far more rows.
  double all_ideal_flops = 0x1p33;
};

struct RowChoice {
  std::vector<RowId> rows;  // sorted by batch, head, row
  int64_t total = 0;        // rows the problem has
  bool sampled() const { return static_cast<int64_t>(rows.size()) < total; }
};

// A sample has the first and last rows, the rows beside multiples of 64 (tile edges of every kernel so far) and random
// ones, in at most 16 heads, of which the first and the last are two.
RowChoice choose_rows(const Tensors& tensors, const RowPolicy& policy, uint64_t seed);

// Those of the chosen rows that Ideal is made for.
std::vector<RowId> choose_ideal_rows(const Tensors& tensors, const RowChoice& choice, const RowPolicy& policy,
                                     uint64_t seed);

}  // namespace attune::lab
