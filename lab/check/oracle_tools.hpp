// What the oracles share: who sees whom, inputs that are made anew, and the keys of a half.
#pragma once

#include <cmath>

#include "core/convert.hpp"
#include "lab/check/oracle.hpp"

namespace attune::lab {

// Does row i see key j? Written out from the contract, apart from the formula that the kernels share.
inline bool sees(const Tensors& t, const RowId& id, const Sequence& s, int64_t key) {
  const Problem& p = t.problem;
  if (id.row >= s.seq_q) return false;
  const int64_t shift = p.causal == Causal::top_left ? 0 : s.seq_k - s.seq_q;
  const int64_t ahead = key - (id.row + shift);  // keys to the right of the diagonal are ahead
  if (p.causal != Causal::none && ahead > 0) return false;
  if (p.window_right >= 0 && ahead > p.window_right) return false;
  if (p.window_left >= 0 && -ahead > p.window_left) return false;
  if (!p.has(ATTUNE_MASK)) return true;
  const attune_score_strides& m = p.mask;
  return t[Operand::mask].as<uint8_t>()[id.batch * m.batch + id.head * m.head + id.row * m.query + key * m.key] != 0;
}

// Sets every element of the rows in use: value(row, channel).
template <typename Value>
void set_rows(Tensors& t, Buffer& buffer, const attune_strides& strides, bool keys, int64_t dim, Value&& value) {
  const Problem& p = t.problem;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = t.sequence(b);
    for (int64_t head = 0; head < (keys ? p.heads_kv : p.heads_q); ++head)
      for (int64_t row = 0; row < (keys ? s.seq_k : s.seq_q); ++row) {
        const int64_t base = row_offset(p, strides, b, keys ? s.first_row_k : s.first_row_q, row, head);
        for (int64_t c = 0; c < dim; ++c) store_element(buffer.data(), p.dtype, base + c, value(row, c));
      }
  }
}

inline void zero_bias(Tensors& t) {
  if (t[Operand::bias].allocated()) std::ranges::fill(t[Operand::bias].elements(), std::byte{0});
}

inline OracleVerdict fails_at(const RowId& id, std::string text) { return {"", std::move(text), id}; }

// Relative error of a sum of `terms` in float32, generously.
inline double float_slack(int64_t terms) { return 0x1p-24 * (8 + 2 * std::sqrt(static_cast<double>(terms))); }

inline bool has_lengths(const Problem& p) { return p.packed() || p.has(ATTUNE_USED_Q) || p.has(ATTUNE_USED_K); }

// Keys begin..end of `whole`, tensors of the problem, as a problem of their own; the sink belongs to the last ones.
Tensors keys_of(const Problem& problem, const Tensors& whole, int64_t begin, int64_t end, Storage storage);

}  // namespace attune::lab
