// Which keys a row sees by causality and window, as the references and the ideal have it. Kernels have the rule of
// kernels/attention; this one is written apart, so that a mistake there does not judge itself.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/operands.hpp"

namespace attune {

struct KeyRange {
  int64_t begin = 0, end = 0;  // end <= begin: none
};

// Row `row` of a sequence with seq_q rows and seq_k keys.
inline KeyRange visible_keys(const Problem& problem, int64_t row, int64_t seq_q, int64_t seq_k) {
  const int64_t diagonal = problem.causal == Causal::top_left ? row : row + seq_k - seq_q;
  KeyRange range{0, seq_k};
  if (problem.causal != Causal::none) range.end = std::min(range.end, diagonal + 1);
  if (problem.window_right != unbounded) range.end = std::min(range.end, diagonal + problem.window_right + 1);
  if (problem.window_left != unbounded) range.begin = std::max(range.begin, diagonal - problem.window_left);
  range.begin = std::min(range.begin, seq_k);
  range.end = std::max<int64_t>(range.end, 0);
  return range;
}

// The rows and keys of one batch entry, after packing and used lengths.
struct Sequence {
  int64_t first_row_q = 0, first_row_k = 0;  // offset of the sequence, in rows
  int64_t seq_q = 0, seq_k = 0;              // rows and keys in use
  int64_t stored_q = 0, stored_k = 0;        // rows and keys that exist, in use or not
};

// Rows past `seq_q` up to `stored_q` are not in use: they see no key (output 0, LSE -inf). Lengths on a device cannot
// be checked, so they are clamped to what the descriptor promises; those on the host have been (check_lengths).
inline Sequence sequence_of(const Problem& problem, const Operands& operands, int64_t b) {
  Sequence s;
  if (problem.packed()) {
    const auto* ends_q = operands.in<int32_t>(Operand::cu_seqlens_q);
    const auto* ends_k = operands.in<int32_t>(Operand::cu_seqlens_k);
    const auto clamp_q = [&](int64_t x) { return std::clamp<int64_t>(x, 0, problem.total_q); };
    const auto clamp_k = [&](int64_t x) { return std::clamp<int64_t>(x, 0, problem.total_k); };
    s.first_row_q = clamp_q(ends_q[b]);
    s.first_row_k = clamp_k(ends_k[b]);
    s.stored_q = std::min(clamp_q(ends_q[b + 1]) - s.first_row_q, problem.seq_q);
    s.stored_k = std::min(clamp_k(ends_k[b + 1]) - s.first_row_k, problem.seq_k);
  } else {
    s.stored_q = problem.seq_q;
    s.stored_k = problem.seq_k;
  }
  s.stored_q = std::max<int64_t>(s.stored_q, 0);
  s.stored_k = std::max<int64_t>(s.stored_k, 0);
  s.seq_q = s.stored_q;
  s.seq_k = s.stored_k;
  if (problem.has(ATTUNE_USED_Q)) s.seq_q = std::clamp<int64_t>(operands.in<int32_t>(Operand::used_q)[b], 0, s.seq_q);
  if (problem.has(ATTUNE_USED_K)) s.seq_k = std::clamp<int64_t>(operands.in<int32_t>(Operand::used_k)[b], 0, s.seq_k);
  return s;
}

}  // namespace attune
