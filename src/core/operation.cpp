#include "core/operation.hpp"

#include <algorithm>

namespace attune {
namespace {

// A function-local static: registrations run before main, in no particular order of files.
std::vector<const Operation*>& registered() {
  static std::vector<const Operation*> list;
  return list;
}

}  // namespace

void register_operation(const Operation& operation) {
  auto& list = registered();
  const auto by_name = [](const Operation* a, const Operation* b) { return a->name < b->name; };
  list.insert(std::upper_bound(list.begin(), list.end(), &operation, by_name), &operation);
}

const std::vector<const Operation*>& operations() { return registered(); }

const Operation* find_operation(std::string_view name) {
  for (const Operation* operation : operations())
    if (operation->name == name) return operation;
  return nullptr;
}

bool Operation::may_be_in_place(Operand output, Operand input) const {
  return std::ranges::any_of(in_place,
                             [&](const InPlace& pair) { return pair.output == output && pair.input == input; });
}

bool Operation::has_word_for(const OperandRow& row) const {
  return operands.has(row.operand) && !row.word.empty() && (row.on & always) == 0;
}

double useful_flops(const Problem& problem) { return problem.operation->flops(problem); }
double compulsory_bytes(const Problem& problem) {
  return nothing_to_write(problem) ? 0 : problem.operation->bytes(problem);
}

}  // namespace attune
