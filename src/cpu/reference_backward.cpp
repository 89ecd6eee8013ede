// See the formulas in the header.
#include "cpu/reference_backward.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/convert.hpp"

namespace attune::cpu {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

int64_t score_offset(const attune_score_strides& s, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return batch * s.batch + head * s.head + row * s.query + key * s.key;
}

double dot(const double* a, const double* b, int64_t dim) {
  double sum = 0;
  for (int64_t c = 0; c < dim; ++c) sum += a[c] * b[c];
  return sum;
}

}  // namespace

ReferenceHead::ReferenceHead(const Problem& problem, const Operands& operands, int64_t batch, int64_t head)
    : problem_(problem),
      operands_(operands),
      batch_(batch),
      head_(head),
      sequence_(sequence_of(problem, operands, batch)) {
  const int64_t head_kv = head / problem.group();
  const auto load = [&](Operand operand, const attune_strides& strides, int64_t of_head, int64_t first, int64_t rows,
                        int64_t dim) {
    std::vector<double> values;
    for (int64_t row = first; row < first + rows; ++row)
      for (int64_t c = 0; c < dim; ++c)
        values.push_back(static_cast<double>(load_element(
            operands.in(operand), problem.dtype,
            (problem.packed() ? 0 : batch * strides.batch) + row * strides.row + of_head * strides.head + c)));
    return values;
  };
  const Sequence& s = sequence_;
  q_ = load(Operand::q, problem.q, head, s.first_row_q, s.seq_q, problem.dim_qk);
  dout_ = load(Operand::dout, problem.dout, head, s.first_row_q, s.seq_q, problem.dim_v);
  k_ = load(Operand::k, problem.k, head_kv, s.first_row_k, s.seq_k, problem.dim_qk);
  v_ = load(Operand::v, problem.v, head_kv, s.first_row_k, s.seq_k, problem.dim_v);

  lse_.assign(static_cast<size_t>(s.seq_q), -infinity);
  delta_.assign(static_cast<size_t>(s.seq_q), 0);
  o_.assign(static_cast<size_t>(s.seq_q * problem.dim_v), 0);
  const double sink =
      problem.has(ATTUNE_SINK) ? static_cast<double>(operands.in<float>(Operand::sink)[head]) : -infinity;
  for (int64_t i = 0; i < s.seq_q; ++i) {
    double largest = sink;
    for (int64_t j = 0; j < s.seq_k; ++j)
      if (sees(i, j)) largest = std::max(largest, x(i, j));
    if (largest == -infinity) continue;  // sees nothing
    double denominator = std::exp(sink - largest);
    double* const o = o_.data() + i * problem.dim_v;
    for (int64_t j = 0; j < s.seq_k; ++j) {
      if (!sees(i, j)) continue;
      const double weight = std::exp(x(i, j) - largest);
      denominator += weight;
      for (int64_t c = 0; c < problem.dim_v; ++c) o[c] += weight * v_[static_cast<size_t>(j * problem.dim_v + c)];
    }
    for (int64_t c = 0; c < problem.dim_v; ++c) o[c] /= denominator;
    const auto row = static_cast<size_t>(i);
    lse_[row] = largest + std::log(denominator);
    delta_[row] = dot(dout_.data() + i * problem.dim_v, o, problem.dim_v);
    if (problem.has(ATTUNE_DLSE))
      delta_[row] -= static_cast<double>(
          operands.in<float>(Operand::dlse)[(problem.packed() ? 0 : batch * problem.dlse.batch) +
                                            (s.first_row_q + i) * problem.dlse.row + head * problem.dlse.head]);
  }
}

bool ReferenceHead::sees(int64_t row, int64_t key) const {
  const KeyRange range = visible_keys(problem_, row, sequence_.seq_q, sequence_.seq_k);
  if (key < range.begin || key >= range.end) return false;
  return !problem_.has(ATTUNE_MASK) ||
         operands_.in<uint8_t>(Operand::mask)[score_offset(problem_.mask, batch_, head_, row, key)] != 0;
}

double ReferenceHead::product(int64_t row, int64_t key) const {
  return dot(q_.data() + row * problem_.dim_qk, k_.data() + key * problem_.dim_qk, problem_.dim_qk);
}

double ReferenceHead::x(int64_t row, int64_t key) const {
  double score = static_cast<double>(problem_.scale) * product(row, key);
  const auto cap = static_cast<double>(problem_.softcap);
  if (problem_.has(ATTUNE_SOFTCAP)) score = cap * std::tanh(score / cap);
  if (problem_.has(ATTUNE_BIAS))
    score += static_cast<double>(load_element(operands_.in(Operand::bias), problem_.bias_dtype,
                                              score_offset(problem_.bias, batch_, head_, row, key)));
  return score;
}

ReferenceHead::Score ReferenceHead::score(int64_t row, int64_t key) const {
  if (!sees(row, key) || lse(row) == -infinity) return {};
  Score score;
  score.weight = std::exp(x(row, key) - lse(row));
  const double dp = dot(dout_.data() + row * problem_.dim_v, v_.data() + key * problem_.dim_v, problem_.dim_v);
  score.gradient = score.weight * (dp - delta_[static_cast<size_t>(row)]);
  const auto scale = static_cast<double>(problem_.scale);
  score.s_gradient = score.gradient * scale;
  if (problem_.has(ATTUNE_SOFTCAP)) {
    const double capped = std::tanh(scale * product(row, key) / static_cast<double>(problem_.softcap));
    score.s_gradient *= 1 - capped * capped;
  }
  return score;
}

void ReferenceHead::add_dq(int64_t row, double* dq) const {
  if (row >= sequence_.seq_q) return;
  for (int64_t j = 0; j < sequence_.seq_k; ++j) {
    const double s = score(row, j).s_gradient;
    for (int64_t c = 0; c < problem_.dim_qk; ++c) dq[c] += s * k_[static_cast<size_t>(j * problem_.dim_qk + c)];
  }
}

void ReferenceHead::add_dk(int64_t key, double* dk) const {
  if (key >= sequence_.seq_k) return;
  for (int64_t i = 0; i < sequence_.seq_q; ++i) {
    const double s = score(i, key).s_gradient;
    for (int64_t c = 0; c < problem_.dim_qk; ++c) dk[c] += s * q_[static_cast<size_t>(i * problem_.dim_qk + c)];
  }
}

void ReferenceHead::add_dv(int64_t key, double* dv) const {
  if (key >= sequence_.seq_k) return;
  for (int64_t i = 0; i < sequence_.seq_q; ++i) {
    const double p = score(i, key).weight;
    for (int64_t c = 0; c < problem_.dim_v; ++c) dv[c] += p * dout_[static_cast<size_t>(i * problem_.dim_v + c)];
  }
}

double ReferenceHead::dsink() const {
  const auto sink = static_cast<double>(operands_.in<float>(Operand::sink)[head_]);
  double sum = 0;
  for (int64_t i = 0; i < sequence_.seq_q; ++i)
    if (lse(i) != -infinity) sum -= std::exp(sink - lse(i)) * delta_[static_cast<size_t>(i)];
  return sum;
}

}  // namespace attune::cpu
