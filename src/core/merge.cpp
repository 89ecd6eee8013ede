// The operation "merge": joins partial results over disjoint key sets. Its problems say the rows, heads and dim of the
// results as those of queries; heads_kv and dim_qk are the same, and there are no keys.
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr std::string_view required[] = {"p", "b", "h", "q", "d", "dtype"};
constexpr std::string_view optional[] = {"parts", "layout"};

// The result may take the place of a part.
constexpr InPlace in_place[] = {{Operand::o, Operand::part_o}, {Operand::lse, Operand::part_lse}};

Problem resolved(const Problem& problem) { return problem_from(merge_desc_from(problem), problem.has(ATTUNE_LSE)); }

double elements(const Problem& problem) {
  return static_cast<double>(problem.batch) * static_cast<double>(problem.heads_q) *
         static_cast<double>(problem.seq_q) * static_cast<double>(problem.dim_v);
}

double flops(const Problem& problem) { return 2.0 * problem.parts * elements(problem); }

double bytes(const Problem& problem) {
  const double rows = elements(problem) / static_cast<double>(problem.dim_v);
  const double lse = (problem.parts + (problem.has(ATTUNE_LSE) ? 1 : 0)) * 4.0 * rows;
  return elements(problem) *
             static_cast<double>(problem.parts * bytes_of(problem.part_dtype) + bytes_of(problem.dtype)) +
         lse;
}

}  // namespace

constinit const Operation merge_operation{
    .name = "merge",
    .example = "merge p4 b1 h8 q512 d64 bf16 parts-f32",
    .operands = {Operand::o, Operand::lse, Operand::part_o, Operand::part_lse},
    .written = {Operand::o, Operand::lse},
    .required_words = required,
    .optional_words = optional,
    .resolved = resolved,
    .in_place = in_place,
    .flops = flops,
    .bytes = bytes,
};
namespace {
const OperationRegistration registration(merge_operation);
}

}  // namespace attune
