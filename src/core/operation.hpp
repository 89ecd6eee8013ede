// What can be asked of the library: attention's forward pass, its gradients, the merging of partial results. An
// operation is a value: the operands it takes, the words its problems are written with, and the rules that hold for it
// alone. Selection, plans, explanations, checks and measurements know operations and not their names, so one more needs
// no edit there.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/operands.hpp"
#include "core/problem.hpp"

namespace attune {

class OperandSet {
 public:
  constexpr OperandSet(std::initializer_list<Operand> operands) {
    for (const Operand operand : operands) bits_ |= bit(operand);
  }
  constexpr bool has(Operand operand) const { return (bits_ & bit(operand)) != 0; }

 private:
  static constexpr uint32_t bit(Operand operand) { return uint32_t{1} << static_cast<uint32_t>(operand); }
  uint32_t bits_ = 0;
};

struct InPlace {
  Operand output, input;
};

struct Operation {
  std::string_view name;  // the first word of its problems
  std::string_view example;
  OperandSet operands;
  OperandSet written;  // of these

  // Words of the text form by kind, in the order in which they are printed: those that a problem must have, and those
  // that it may have besides the words of its operands.
  std::span<const std::string_view> required_words, optional_words;
  attune_features always = 0;  // features that all of its problems have; no word switches them

  // The problem as a descriptor of the C interface gives it: checked against the contract, defaults resolved. Throws
  // ATTUNE_INVALID_ARGUMENT.
  Problem (*resolved)(const Problem& problem);

  // Outputs that may be one of the parts of an input; all others need memory of their own.
  std::span<const InPlace> in_place = {};

  double (*flops)(const Problem& problem);  // useful_flops
  double (*bytes)(const Problem& problem);  // compulsory_bytes

  bool may_be_in_place(Operand output, Operand input) const;
  bool has_word_for(const OperandRow& row) const;  // that switches the operand's feature
};

extern const Operation backward_operation;
extern const Operation merge_operation;

// Sorted by name.
const std::vector<const Operation*>& operations();
const Operation* find_operation(std::string_view name);  // nullptr if there is none

// At namespace scope, beside the operation: makes it known to the text form.
void register_operation(const Operation& operation);
struct OperationRegistration {
  explicit OperationRegistration(const Operation& operation) { register_operation(operation); }
};

// Of attention's forward pass (core/work.cpp).
double attention_flops(const Problem& problem);
double attention_bytes(const Problem& problem);

}  // namespace attune
