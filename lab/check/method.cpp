#include "lab/check/method.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace attune::lab {
namespace {

// A function-local static: registrations run before main, in no particular order of files.
std::vector<const CheckMethod*>& methods() {
  static std::vector<const CheckMethod*> list;
  return list;
}

}  // namespace

CheckMethodRegistration::CheckMethodRegistration(const CheckMethod& method) { methods().push_back(&method); }

std::vector<Operand> CheckMethod::outputs(const Problem& problem) const {
  if (reference_of == nullptr) return {Operand::o};
  std::vector<Operand> outputs;
  for (const OperandRow& row : operand_rows())
    if (is_written(problem, row)) outputs.push_back(row.operand);
  return outputs;
}

const CheckMethod& check_method_of(const Problem& problem) {
  const auto found = std::ranges::find(methods(), problem.operation, &CheckMethod::operation);
  if (found == methods().end()) fail(ATTUNE_UNSUPPORTED, "the operation '{}' has no check", problem.operation->name);
  return **found;
}

Ideal ideal_rows(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads) {
  return check_method_of(tensors.problem).ideal_rows(tensors, rows, threads);
}

}  // namespace attune::lab
