// The operation "bwd": the gradients of attention's forward pass.
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr std::string_view required[] = {"b", "h", "q", "k", "d", "dtype"};
constexpr std::string_view optional[] = {"causal", "w",       "cap",     "var",      "scale",
                                         "layout", "overlap", "kvready", "any-order"};

Problem resolved(const Problem& problem) { return problem_from(backward_desc_from(problem)); }

// Five products of the size of the forward pass' two: scores again, dp, dv, dk and dq.
double flops(const Problem& problem) { return 2.5 * attention_flops(problem); }

// What the forward pass moves, o being read; dout; and a gradient for each of q, k, v and what else one is asked for.
double bytes(const Problem& problem) {
  const auto element = static_cast<double>(bytes_of(problem.dtype));
  const double rows =
      static_cast<double>(problem.batch) * static_cast<double>(problem.heads_q) * static_cast<double>(problem.seq_q);
  const double keys =
      static_cast<double>(problem.batch) * static_cast<double>(problem.heads_kv) * static_cast<double>(problem.seq_k);
  const auto dims = static_cast<double>(problem.dim_qk + problem.dim_v);
  const double dlse = problem.has(ATTUNE_DLSE) ? 4 * rows : 0;
  return attention_bytes(problem) + (rows + keys) * dims * element + dlse;
}

}  // namespace

constinit const Operation backward_operation{
    .name = "bwd",
    .example = "bwd b1 h8/8 q512 k512 d64 f16 causal-br",
    .operands = {Operand::q, Operand::k, Operand::v, Operand::o, Operand::lse, Operand::sink, Operand::bias,
                 Operand::mask, Operand::dout, Operand::dlse, Operand::dq, Operand::dk, Operand::dv, Operand::dsink,
                 Operand::dbias, Operand::cu_seqlens_q, Operand::cu_seqlens_k, Operand::used_q, Operand::used_k},
    .written = {Operand::dq, Operand::dk, Operand::dv, Operand::dsink, Operand::dbias},
    .required_words = required,
    .optional_words = optional,
    .always = ATTUNE_LSE,
    .resolved = resolved,
    .flops = flops,
    .bytes = bytes,
};
namespace {
const OperationRegistration registration(backward_operation);
}

}  // namespace attune
