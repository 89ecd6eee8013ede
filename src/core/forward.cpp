// The operation "fwd": attention's forward pass.
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr std::string_view required[] = {"b", "h", "q", "k", "d", "dtype"};
constexpr std::string_view optional[] = {"causal", "w", "cap", "var", "scale", "layout", "overlap", "kvready", "high"};

Problem resolved(const Problem& problem) { return problem_from(desc_from(problem)); }

}  // namespace

constinit const Operation forward_operation{
    .name = "fwd",
    .example = "fwd b1 h8/8 q512 k512 d64 f16 causal-br",
    .operands = {Operand::q, Operand::k, Operand::v, Operand::o, Operand::lse, Operand::sink, Operand::bias,
                 Operand::mask, Operand::cu_seqlens_q, Operand::cu_seqlens_k, Operand::used_q, Operand::used_k},
    .written = {Operand::o, Operand::lse},
    .required_words = required,
    .optional_words = optional,
    .resolved = resolved,
    .flops = attention_flops,
    .bytes = attention_bytes,
};
namespace {
const OperationRegistration registration(forward_operation);
}

}  // namespace attune
