// Problem to text, in the words that problem_parse.cpp reads.
#include <fmt/format.h>

#include <string>

#include "core/problem.hpp"

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
bool same_steps(const attune_strides& a, const attune_strides& b, int64_t batch, int64_t rows, int64_t heads) {
  return (batch <= 1 || a.batch == b.batch) && (rows <= 1 || a.row == b.row) && (heads <= 1 || a.head == b.head);
}

bool same_steps(const attune_score_strides& a, const attune_score_strides& b, const Problem& problem) {
  return (problem.batch <= 1 || a.batch == b.batch) && (problem.heads_q <= 1 || a.head == b.head) &&
         (problem.seq_q <= 1 || a.query == b.query) && (problem.seq_k <= 1 || a.key == b.key);
}

bool same_strides(const Problem& a, const Problem& b) {
  const int64_t batch = a.packed() ? 1 : a.batch;
  const int64_t rows_q = a.packed() ? a.total_q : a.seq_q;
  const int64_t rows_k = a.packed() ? a.total_k : a.seq_k;
  return same_steps(a.q, b.q, batch, rows_q, a.heads_q) && same_steps(a.k, b.k, batch, rows_k, a.heads_kv) &&
         same_steps(a.v, b.v, batch, rows_k, a.heads_kv) && same_steps(a.o, b.o, batch, rows_q, a.heads_q) &&
         same_steps(a.lse, b.lse, batch, rows_q, a.heads_q) && same_steps(a.bias, b.bias, a) &&
         same_steps(a.mask, b.mask, a);
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
  std::string text = fmt::format("fwd b{} h{}/{} q{} k{} d{}", problem.batch, problem.heads_q, problem.heads_kv,
                                 problem.seq_q, problem.seq_k, problem.dim_qk);
  if (problem.dim_v != problem.dim_qk) text += fmt::format("/{}", problem.dim_v);
  text += fmt::format(" {}", name_of(problem.dtype));
  if (problem.causal != Causal::none) text += fmt::format(" {}", name_of(problem.causal));
  if (problem.window_left != unbounded || problem.window_right != unbounded)
    text += fmt::format(" w{},{}", problem.window_left, problem.window_right);
  if (problem.softcap != 0) text += fmt::format(" cap{}", problem.softcap);
  if (problem.has(ATTUNE_SINK)) text += " sink";
  if (problem.has(ATTUNE_BIAS)) {
    text += fmt::format(" bias={}", letters_of(shape_of(problem.bias)));
    if (problem.bias_dtype != problem.dtype) text += ":f32";
  }
  if (problem.has(ATTUNE_MASK)) text += fmt::format(" mask={}", letters_of(shape_of(problem.mask)));
  if (problem.packed()) {
    text += " var";
    if (!is_full_total(problem.total_q, problem.batch, problem.seq_q) ||
        !is_full_total(problem.total_k, problem.batch, problem.seq_k))
      text += fmt::format("={},{}", problem.total_q, problem.total_k);
  }
  if (problem.has(ATTUNE_USED_Q)) text += " used-q";
  if (problem.has(ATTUNE_USED_K)) text += " used-k";
  if (!problem.has(ATTUNE_LSE)) text += " nolse";
  if (problem.scale != default_scale(problem.dim_qk)) text += fmt::format(" scale{}", problem.scale);
  text += layout_word(problem);
  if (problem.has(ATTUNE_OVERLAP)) text += " overlap";
  if (problem.has(ATTUNE_KV_READY)) text += " kvready";
  if (problem.has(ATTUNE_F32_HIGH)) text += " high";
  return text;
}

}  // namespace attune
