// How problems of an operation are checked: what their inputs hold, what the truth is, what a perfect kernel gives, and
// which oracles have something to say. Everything else of a check is the same for all operations.
#pragma once

#include <span>
#include <string>

#include "cpu/threads.hpp"
#include "lab/check/ideal.hpp"
#include "lab/check/inputs.hpp"
#include "lab/check/oracle.hpp"
#include "lab/check/reference.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

struct CheckMethod {
  const Operation* operation;

  // Fills the inputs of allocated tensors.
  void (*fill)(Tensors& tensors, InputKind kind, uint64_t seed, cpu::Threads& threads);

  // Of an operation whose outputs are o and lse: one row of them in float64, dim_v values to o, the log-sum-exp to
  // *lse; and what a perfect kernel gives.
  void (*reference_row)(const Problem& problem, const Operands& inputs, const RowId& row, double* o,
                        double* lse) = nullptr;
  Ideal (*ideal_rows)(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads) = nullptr;

  // Of one with other outputs: the same for each of them, over rows of its own, in one go, since they share most work.
  std::vector<ReferenceRows> (*reference_of)(const Tensors& tensors, std::span<const RowChoice> outputs,
                                             cpu::Threads& threads) = nullptr;
  std::vector<Ideal> (*ideal_of)(const Tensors& tensors, std::span<const RowChoice> outputs,
                                 cpu::Threads& threads) = nullptr;

  std::span<const Oracle> oracles;

  // What a kernel that is promised for this problem is checked with on a card; problems that it refuses are left out.
  std::vector<std::string> (*problems_like)(const Problem& like);

  // The outputs that are judged: o, the LSE with it, or whatever else is written.
  std::vector<Operand> outputs(const Problem& problem) const;
};

// Throws ATTUNE_UNSUPPORTED if nobody has said how the problem's operation is checked.
const CheckMethod& check_method_of(const Problem& problem);

// At namespace scope, beside the method.
struct CheckMethodRegistration {
  explicit CheckMethodRegistration(const CheckMethod& method);
};

// The words of a problem that are neither its shape nor its dtype. Packed sequences take their totals from the shape.
std::string own_words_of(const Problem& problem);

}  // namespace attune::lab
