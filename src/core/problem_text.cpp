// Problem to text, in the words that problem_parse.cpp reads.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/operation.hpp"

namespace attune {
namespace {

ScoreShape shape_of(const attune_score_strides& strides) {
  return {strides.batch != 0, strides.head != 0, strides.query != 0, strides.key != 0};
}

std::string letters_of(ScoreShape shape) {
  return fmt::format("{}{}{}{}", shape.batch ? 'b' : '1', shape.head ? 'h' : '1', shape.query ? 'q' : '1',
                     shape.key ? 'k' : '1');
}

// The strides of an extent of 1 are never used.
bool same_steps(const attune_strides& a, const attune_strides& b, const RowExtents& extents) {
  return (extents.batch <= 1 || a.batch == b.batch) && (extents.rows <= 1 || a.row == b.row) &&
         (extents.heads <= 1 || a.head == b.head);
}

bool same_steps(const attune_score_strides& a, const attune_score_strides& b, const Problem& problem) {
  return (problem.batch <= 1 || a.batch == b.batch) && (problem.heads_q <= 1 || a.head == b.head) &&
         (problem.seq_q <= 1 || a.query == b.query) && (problem.seq_k <= 1 || a.key == b.key);
}

bool same_strides(const Problem& a, const Problem& b) {
  return std::ranges::all_of(operand_rows(), [&](const OperandRow& row) {
    if (!has_operand(a, row)) return true;
    if (row.strides != nullptr) return same_steps(a.*row.strides, b.*row.strides, row_extents(a, row));
    return row.score_strides == nullptr || same_steps(a.*row.score_strides, b.*row.score_strides, a);
  });
}

bool is_full_total(int64_t total, int64_t batch, int64_t seq) {
  int64_t full = 0;
  return !__builtin_mul_overflow(batch, seq, &full) && total == full;
}

std::string_view layout_word(const Problem& problem) {
  Problem bshd = problem, bhsd = problem;
  const ScoreShape bias = shape_of(problem.bias), mask = shape_of(problem.mask);
  set_contiguous(bshd, Layout::bshd, bias, mask);
  set_contiguous(bhsd, Layout::bhsd, bias, mask);
  // The exact match first: where both layouts are the same memory, the text still gives back the same Problem.
  if (problem == bshd) return "";
  if (problem == bhsd) return " bhsd";
  if (same_strides(problem, bshd)) return "";
  if (same_strides(problem, bhsd)) return " bhsd";
  return " strided";
}

}  // namespace

std::string to_string(const Problem& problem) {
  const Operation& operation = *problem.operation;
  std::string text(operation.name);
  if (problem.parts != 0) text += fmt::format(" p{}", problem.parts);
  text += fmt::format(" b{} h{}", problem.batch, problem.heads_q);
  if (operation.operands.has(Operand::k)) text += fmt::format("/{}", problem.heads_kv);
  text += fmt::format(" q{}", problem.seq_q);
  if (operation.operands.has(Operand::k)) text += fmt::format(" k{}", problem.seq_k);
  text += fmt::format(" d{}", problem.dim_qk);
  if (problem.dim_v != problem.dim_qk) text += fmt::format("/{}", problem.dim_v);
  text += fmt::format(" {}", name_of(problem.dtype));
  if (problem.parts != 0 && problem.part_dtype != problem.dtype)
    text += fmt::format(" parts-{}", name_of(problem.part_dtype));
  if (problem.causal != Causal::none) text += fmt::format(" {}", name_of(problem.causal));
  if (problem.window_left != unbounded || problem.window_right != unbounded)
    text += fmt::format(" w{},{}", problem.window_left, problem.window_right);
  if (problem.softcap != 0) text += fmt::format(" cap{}", problem.softcap);
  std::string lengths, left_out;
  for (const OperandRow& row : operand_rows()) {
    if (!operation.operands.has(row.operand)) continue;
    if (row.form == Form::scores && row.word.empty() && problem.has(row.on)) {
      text += fmt::format(" {}={}", row.name, letters_of(shape_of(problem.*row.score_strides)));
      if (row.element == Element::of_bias && problem.bias_dtype != problem.dtype) text += ":f32";
    } else if (operation.has_word_for(row) && problem.has(row.on) != row.word_is_off) {
      (row.word_is_off ? left_out : row.element == Element::i32 ? lengths : text) += fmt::format(" {}", row.word);
    }
  }
  if (problem.packed()) {
    text += " var";
    if (!is_full_total(problem.total_q, problem.batch, problem.seq_q) ||
        !is_full_total(problem.total_k, problem.batch, problem.seq_k))
      text += fmt::format("={},{}", problem.total_q, problem.total_k);
  }
  text += lengths + left_out;
  if (problem.scale != default_scale(problem.dim_qk)) text += fmt::format(" scale{}", problem.scale);
  text += layout_word(problem);
  if (problem.has(ATTUNE_OVERLAP)) text += " overlap";
  if (problem.has(ATTUNE_KV_READY)) text += " kvready";
  if (problem.has(ATTUNE_F32_HIGH)) text += " high";
  if (problem.has(ATTUNE_ANY_ORDER)) text += " any-order";
  return text;
}

}  // namespace attune
