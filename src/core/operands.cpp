#include "core/operands.hpp"

#include "core/checks.hpp"
#include "core/operation.hpp"

namespace attune {
namespace {

constexpr std::array<OperandRow, operand_count> rows{{
    {.operand = Operand::q,
     .name = "q",
     .what = "the queries",
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .dim = &Problem::dim_qk,
     .strides = &Problem::q},
    {.operand = Operand::k,
     .name = "k",
     .what = "the keys",
     .seq = &Problem::seq_k,
     .total = &Problem::total_k,
     .heads = &Problem::heads_kv,
     .dim = &Problem::dim_qk,
     .strides = &Problem::k},
    {.operand = Operand::v,
     .name = "v",
     .what = "the values",
     .seq = &Problem::seq_k,
     .total = &Problem::total_k,
     .heads = &Problem::heads_kv,
     .dim = &Problem::dim_v,
     .strides = &Problem::v},
    {.operand = Operand::o,
     .name = "o",
     .what = "the output",
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .dim = &Problem::dim_v,
     .strides = &Problem::o},
    {.operand = Operand::lse,
     .name = "lse",
     .what = "the log-sum-exp",
     .on = ATTUNE_LSE,
     .feature_name = "ATTUNE_LSE",
     .word = "nolse",
     .word_is_off = true,
     .element = Element::f32,
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .strides = &Problem::lse},
    {.operand = Operand::sink,
     .name = "sink",
     .what = "heads_q floats",
     .on = ATTUNE_SINK,
     .feature_name = "ATTUNE_SINK",
     .word = "sink",
     .element = Element::f32,
     .form = Form::heads},
    {.operand = Operand::bias,
     .name = "bias",
     .what = "the bias",
     .on = ATTUNE_BIAS,
     .feature_name = "ATTUNE_BIAS",
     .element = Element::of_bias,
     .form = Form::scores,
     .score_strides = &Problem::bias},
    {.operand = Operand::mask,
     .name = "mask",
     .what = "the mask",
     .on = ATTUNE_MASK,
     .feature_name = "ATTUNE_MASK",
     .element = Element::byte,
     .form = Form::scores,
     .score_strides = &Problem::mask},
    {.operand = Operand::cu_seqlens_q,
     .name = "cu_seqlens_q",
     .what = "batch + 1 offsets",
     .on = ATTUNE_PACKED,
     .feature_name = "ATTUNE_PACKED",
     .element = Element::i32,
     .form = Form::boundaries},
    {.operand = Operand::cu_seqlens_k,
     .name = "cu_seqlens_k",
     .what = "batch + 1 offsets",
     .on = ATTUNE_PACKED,
     .feature_name = "ATTUNE_PACKED",
     .element = Element::i32,
     .form = Form::boundaries},
    {.operand = Operand::used_q,
     .name = "used_q",
     .what = "batch lengths",
     .on = ATTUNE_USED_Q,
     .feature_name = "ATTUNE_USED_Q",
     .word = "used-q",
     .element = Element::i32,
     .form = Form::sequences},
    {.operand = Operand::used_k,
     .name = "used_k",
     .what = "batch lengths",
     .on = ATTUNE_USED_K,
     .feature_name = "ATTUNE_USED_K",
     .word = "used-k",
     .element = Element::i32,
     .form = Form::sequences},
    {.operand = Operand::part_o,
     .name = "part_o",
     .what = "a partial output",
     .per_part = true,
     .element = Element::of_parts,
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .dim = &Problem::dim_v,
     .strides = &Problem::part_o},
    {.operand = Operand::part_lse,
     .name = "part_lse",
     .what = "a partial log-sum-exp",
     .per_part = true,
     .element = Element::f32,
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .strides = &Problem::part_lse},
    {.operand = Operand::dout,
     .name = "dout",
     .what = "the gradient of the output",
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .dim = &Problem::dim_v,
     .strides = &Problem::dout},
    {.operand = Operand::dlse,
     .name = "dlse",
     .what = "the gradient of the log-sum-exp",
     .on = ATTUNE_DLSE,
     .feature_name = "ATTUNE_DLSE",
     .word = "dlse",
     .element = Element::f32,
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .strides = &Problem::dlse},
    {.operand = Operand::dq,
     .name = "dq",
     .what = "the gradient of the queries",
     .seq = &Problem::seq_q,
     .total = &Problem::total_q,
     .heads = &Problem::heads_q,
     .dim = &Problem::dim_qk,
     .strides = &Problem::dq},
    {.operand = Operand::dk,
     .name = "dk",
     .what = "the gradient of the keys",
     .seq = &Problem::seq_k,
     .total = &Problem::total_k,
     .heads = &Problem::heads_kv,
     .dim = &Problem::dim_qk,
     .strides = &Problem::dk},
    {.operand = Operand::dv,
     .name = "dv",
     .what = "the gradient of the values",
     .seq = &Problem::seq_k,
     .total = &Problem::total_k,
     .heads = &Problem::heads_kv,
     .dim = &Problem::dim_v,
     .strides = &Problem::dv},
    {.operand = Operand::dsink,
     .name = "dsink",
     .what = "heads_q floats",
     .on = ATTUNE_DSINK,
     .feature_name = "ATTUNE_DSINK",
     .word = "dsink",
     .element = Element::f32,
     .form = Form::heads},
    {.operand = Operand::dbias,
     .name = "dbias",
     .what = "the gradient of the bias",
     .on = ATTUNE_DBIAS,
     .feature_name = "ATTUNE_DBIAS",
     .word = "dbias",
     .element = Element::of_bias,
     .form = Form::scores,
     .score_strides = &Problem::dbias},
}};

constexpr bool is_in_order() {
  for (size_t i = 0; i < rows.size(); ++i)
    if (static_cast<size_t>(rows[i].operand) != i) return false;
  return true;
}
static_assert(is_in_order(), "the rows stand in the order of the enumeration");

}  // namespace

const std::array<OperandRow, operand_count>& operand_rows() { return rows; }

bool has_operand(const Problem& problem, const OperandRow& row) {
  return problem.operation->operands.has(row.operand) && (row.on == 0 || problem.has(row.on));
}

bool is_written(const Problem& problem, const OperandRow& row) {
  return problem.operation->written.has(row.operand) && has_operand(problem, row);
}

bool has_elements(const Problem& problem, const OperandRow& row) {
  switch (row.form) {
    case Form::rows:
      return problem.batch > 0 && problem.*row.heads > 0 && problem.*row.seq > 0 &&
             (!problem.packed() || problem.*row.total > 0);
    case Form::scores:
      return problem.batch > 0 && problem.heads_q > 0 && problem.seq_q > 0 && problem.seq_k > 0 &&
             (!problem.packed() || (problem.total_q > 0 && problem.total_k > 0));
    case Form::heads:
      return problem.heads_q > 0;
    case Form::sequences:
    case Form::boundaries:
      return problem.batch > 0;
  }
  return false;
}

bool nothing_to_write(const Problem& problem) {
  if (!problem.empty()) return false;
  for (const OperandRow& row : rows)
    if (is_written(problem, row) && has_elements(problem, row)) return false;
  return true;
}

int64_t element_bytes(const Problem& problem, const OperandRow& row) {
  switch (row.element) {
    case Element::of_problem:
      return bytes_of(problem.dtype);
    case Element::of_bias:
      return bytes_of(problem.bias_dtype);
    case Element::of_parts:
      return bytes_of(problem.part_dtype);
    case Element::byte:
      return 1;
    case Element::f32:
    case Element::i32:
      return 4;
  }
  return 0;
}

RowExtents row_extents(const Problem& problem, const OperandRow& row) {
  const bool packed = problem.packed();
  return {packed ? 1 : problem.batch, problem.*(packed ? row.total : row.seq), problem.*row.heads,
          row.dim == nullptr ? 1 : problem.*row.dim};
}

int64_t contiguous_elements(const Problem& problem, const OperandRow& row) {
  switch (row.form) {
    case Form::heads:
      return problem.heads_q;
    case Form::sequences:
      return problem.batch;
    case Form::boundaries:
      return problem.batch + 1;
    case Form::rows:
    case Form::scores:
      break;
  }
  return 0;
}

namespace {

// What the structs of attention's passes have in common.
template <typename Args>
Operands operands_of_attention(const Args& args) {
  check_reserved("args.reserved", args.reserved);
  Operands operands;
  operands.set(Operand::q, args.q);
  operands.set(Operand::k, args.k);
  operands.set(Operand::v, args.v);
  operands.set(Operand::o, args.o);
  operands.set(Operand::lse, args.lse);
  operands.set(Operand::sink, args.sink);
  operands.set(Operand::bias, args.bias);
  operands.set(Operand::mask, args.mask);
  operands.set(Operand::cu_seqlens_q, args.cu_seqlens_q);
  operands.set(Operand::cu_seqlens_k, args.cu_seqlens_k);
  operands.set(Operand::used_q, args.used_q);
  operands.set(Operand::used_k, args.used_k);
  operands.workspace = args.workspace;
  operands.workspace_bytes = args.workspace_bytes;
  return operands;
}

template <typename Args>
Args attention_args_of(const Operands& operands) {
  Args args{};
  args.struct_size = sizeof args;
  args.q = operands.in(Operand::q);
  args.k = operands.in(Operand::k);
  args.v = operands.in(Operand::v);
  args.o = operands.out(Operand::o);
  args.lse = operands.out<float>(Operand::lse);
  args.sink = operands.in<float>(Operand::sink);
  args.bias = operands.in(Operand::bias);
  args.mask = operands.in<uint8_t>(Operand::mask);
  args.cu_seqlens_q = operands.in<int32_t>(Operand::cu_seqlens_q);
  args.cu_seqlens_k = operands.in<int32_t>(Operand::cu_seqlens_k);
  args.used_q = operands.in<int32_t>(Operand::used_q);
  args.used_k = operands.in<int32_t>(Operand::used_k);
  args.workspace = operands.workspace;
  args.workspace_bytes = operands.workspace_bytes;
  return args;
}

}  // namespace

Operands operands_of(const attune_forward_args& args) { return operands_of_attention(args); }

Operands operands_of(const attune_backward_args& args) {
  Operands operands = operands_of_attention(args);
  operands.set(Operand::dout, args.dout);
  operands.set(Operand::dlse, args.dlse);
  operands.set(Operand::dq, args.dq);
  operands.set(Operand::dk, args.dk);
  operands.set(Operand::dv, args.dv);
  operands.set(Operand::dsink, args.dsink);
  operands.set(Operand::dbias, args.dbias);
  return operands;
}

Operands operands_of(const attune_merge_args& args) {
  check_reserved("args.reserved", args.reserved);
  Operands operands;
  operands.set(Operand::part_o, static_cast<const void*>(args.part_o));
  operands.set(Operand::part_lse, static_cast<const void*>(args.part_lse));
  operands.set(Operand::o, args.o);
  operands.set(Operand::lse, args.lse);
  return operands;
}

attune_forward_args forward_args_of(const Operands& operands) {
  return attention_args_of<attune_forward_args>(operands);
}

attune_backward_args backward_args_of(const Operands& operands) {
  auto args = attention_args_of<attune_backward_args>(operands);
  args.dout = operands.in(Operand::dout);
  args.dlse = operands.in<float>(Operand::dlse);
  args.dq = operands.out(Operand::dq);
  args.dk = operands.out(Operand::dk);
  args.dv = operands.out(Operand::dv);
  args.dsink = operands.out<float>(Operand::dsink);
  args.dbias = operands.out(Operand::dbias);
  return args;
}

attune_merge_args merge_args_of(const Operands& operands) {
  attune_merge_args args{};
  args.struct_size = sizeof args;
  args.part_o = operands.parts(Operand::part_o);
  args.part_lse = operands.parts<float>(Operand::part_lse);
  args.o = operands.out(Operand::o);
  args.lse = operands.out<float>(Operand::lse);
  return args;
}

}  // namespace attune
