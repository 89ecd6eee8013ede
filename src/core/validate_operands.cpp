// The contract of the C interface, checked: the pointers of a call. They are never followed here; most live on the
// device.
#include <array>
#include <cstdint>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr int64_t workspace_alignment = 256;

// Texts are made when something is wrong.
void check_operand(const Problem& problem, const OperandRow& row, const void* pointer, int64_t part) {
  const auto bytes = static_cast<uintptr_t>(element_bytes(problem, row));
  if (pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % bytes == 0) [[likely]]
    return;
  const std::string name = row.per_part ? fmt::format("args.{}[{}]", row.name, part) : fmt::format("args.{}", row.name);
  const std::string reason = row.on == 0 ? "" : fmt::format(", since desc.features has {}", row.feature_name);
  check_pointer(name.c_str(), pointer, static_cast<int64_t>(bytes), fmt::format("{}{}", row.what, reason).c_str());
}

// The operands that a call of the problem reads or writes. Found once, for this is on the way of every call.
class Present {
 public:
  explicit Present(const Problem& problem) {
    for (const OperandRow& row : operand_rows())
      if (problem.operation->operands.has(row.operand) && has_operand(problem, row) && has_elements(problem, row))
        rows_[count_++] = &row;
  }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.begin() + count_; }

 private:
  std::array<const OperandRow*, operand_count> rows_;
  int count_ = 0;
};

// An output that is a part as well: only as a whole, since another view of the same memory would be overwritten before
// it is read.
void check_in_place(const Problem& problem, const OperandRow& output, const OperandRow& input, int64_t part) {
  if (!problem.operation->may_be_in_place(output.operand, input.operand))
    fail(ATTUNE_INVALID_ARGUMENT, "args.{} is args.{}[{}] too; the output must not be an input", output.name,
         input.name, part);
  const auto same = [](const attune_strides& a, const attune_strides& b) {
    return a.batch == b.batch && a.row == b.row && a.head == b.head;
  };
  if (output.element != input.element && problem.dtype != problem.part_dtype)
    fail(ATTUNE_INVALID_ARGUMENT, "args.{} is args.{}[{}] too; desc.dtype must then equal desc.part_dtype", output.name,
         input.name, part);
  if (!same(problem.*output.strides, problem.*input.strides))
    fail(ATTUNE_INVALID_ARGUMENT, "args.{} is args.{}[{}] too; desc.{} must then equal desc.{}", output.name,
         input.name, part, output.name, input.name);
}

// Only the sure cases: tensors may interleave in memory without sharing an element.
void check_apart(const Problem& problem, const Operands& operands, const Present& present) {
  for (const OperandRow* output : present) {
    if (!problem.operation->written.has(output->operand)) continue;
    const void* const pointer = operands.in(output->operand);
    for (const OperandRow* other : present) {
      if (other == output) continue;
      if (other->per_part) {
        for (int64_t part = 0; part < problem.parts; ++part)
          if (operands.parts(other->operand)[part] == pointer) check_in_place(problem, *output, *other, part);
      } else if (operands.in(other->operand) == pointer) {
        fail(ATTUNE_INVALID_ARGUMENT, "args.{} is {}, which is args.{} too; {}", output->name, pointer, other->name,
             is_written(problem, *other) ? "each output needs memory of its own" : "the output must not be an input");
      }
    }
  }
}

}  // namespace

void check_operands(const Problem& problem, const Operands& operands, uint64_t workspace_bytes) {
  if (nothing_to_write(problem)) return;
  const Present present(problem);
  for (const OperandRow* each : present) {
    const OperandRow& row = *each;
    if (!row.per_part) {
      check_operand(problem, row, operands.in(row.operand), 0);
      continue;
    }
    const void* const* parts = operands.parts(row.operand);
    if (parts == nullptr)
      fail(ATTUNE_INVALID_ARGUMENT, "args.{} is NULL; it must point to an array of desc.parts pointers", row.name);
    for (int64_t part = 0; part < problem.parts; ++part) check_operand(problem, row, parts[part], part);
  }
  check_apart(problem, operands, present);

  if (workspace_bytes > 0) {
    if (operands.workspace_bytes < workspace_bytes)
      fail(ATTUNE_INVALID_ARGUMENT, "args.workspace_bytes is {}; this problem needs at least {}",
           operands.workspace_bytes, workspace_bytes);
    check_pointer("args.workspace", operands.workspace, workspace_alignment,
                  "args.workspace_bytes bytes of working memory");
  }
}

}  // namespace attune
