// Where the truth comes from: float64 results of chosen rows, computed from the stored inputs and not rounded.
//
// The CPU computes them row by row. A device with a reference kernel of its own can offer a source that affords every
// row; it gets the same tensors.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "cpu/threads.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

struct ReferenceRows {
  int64_t dim = 0;
  std::vector<double> o;     // rows x dim: of the output in question
  std::vector<double> lse;   // natural log; -inf where the row sees nothing. Of gradients empty
  std::vector<bool> unseen;  // of gradients: rows that nothing reaches
  bool sees_nothing(size_t row) const {
    return unseen.empty() ? lse[row] == -std::numeric_limits<double>::infinity() : unseen[row];
  }
};

class ReferenceSource {
 public:
  virtual ~ReferenceSource() = default;
  virtual ReferenceRows rows(const Tensors& tensors, std::span<const RowId> rows) = 0;
};

std::unique_ptr<ReferenceSource> make_cpu_reference(cpu::Threads& threads);

}  // namespace attune::lab
