// Which rows of an output are compared with float64: all of them while that is affordable, else a sample. Most outputs
// have rows of queries, gradients of keys and values those of keys; what has one number per head is a row per head, and
// of a bias' gradient the keys of one query are a row.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "lab/check/tensors.hpp"

namespace attune::lab {

struct RowId {
  int64_t batch = 0, head = 0, row = 0;  // row within its sequence; 0 along what the output does not have
  auto operator<=>(const RowId&) const = default;
};

// How many batch entries and heads the rows of an output have, and how many elements a row.
struct RowSpace {
  int64_t batches, heads, dim;
};
RowSpace row_space(const Problem& problem, Operand output);
int64_t rows_in(const Tensors& tensors, Operand output, int64_t batch);  // of each head

// Offset of an element of a row, in elements.
int64_t element_offset(const Tensors& tensors, Operand output, const RowId& row, int64_t element);
Dtype dtype_of(const Problem& problem, Operand output);

struct RowPolicy {
  double all_rows_flops = 0x1p33;  // useful work up to which every row is compared
  int64_t sampled_rows = 512;
  // Useful work up to which every compared row is compared with Ideal too, and not only a sample of them. Ideal runs on
  // the CPU; a device may afford the float64 reference of far more rows.
  double all_ideal_flops = 0x1p33;
};

struct RowChoice {
  Operand output = Operand::o;
  std::vector<RowId> rows;  // sorted by batch, head, row
  int64_t total = 0;        // rows the problem has
  bool sampled() const { return static_cast<int64_t>(rows.size()) < total; }
};

// A sample has the first and last rows, the rows beside multiples of 64 (tile edges of every kernel so far) and random
// ones, in at most 16 heads, of which the first and the last are two.
RowChoice choose_rows(const Tensors& tensors, const RowPolicy& policy, uint64_t seed, Operand output = Operand::o);

// Those of the chosen rows that Ideal is made for.
std::vector<RowId> choose_ideal_rows(const Tensors& tensors, const RowChoice& choice, const RowPolicy& policy,
                                     uint64_t seed);

}  // namespace attune::lab
