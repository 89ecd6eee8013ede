// How problems of an operation are checked: what their inputs hold, what the truth is, what a perfect kernel gives, and
// which oracles have something to say. Everything else of a check is the same for all operations.
#pragma once

#include <span>

#include "cpu/threads.hpp"
#include "lab/check/ideal.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/oracle.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

struct CheckMethod {
  const Operation* operation;

  // Fills the inputs of allocated tensors.
  void (*fill)(Tensors& tensors, InputKind kind, uint64_t seed, cpu::Threads& threads);

  // One row of the outputs in float64: dim_v values to o, the log-sum-exp to *lse.
  void (*reference_row)(const Problem& problem, const Operands& inputs, const RowId& row, double* o, double* lse);

  Ideal (*ideal_rows)(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads);

  std::span<const Oracle> oracles;

  // What a kernel that is promised for this problem is checked with on a card; problems that it refuses are left out.
  std::vector<std::string> (*problems_like)(const Problem& like);
};

// Throws ATTUNE_UNSUPPORTED if nobody has said how the problem's operation is checked.
const CheckMethod& check_method_of(const Problem& problem);

// At namespace scope, beside the method.
struct CheckMethodRegistration {
  explicit CheckMethodRegistration(const CheckMethod& method);
};

}  // namespace attune::lab
