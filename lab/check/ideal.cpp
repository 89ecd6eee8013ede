#include "lab/check/ideal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lab/check/dtype.hpp"
#include "lab/check/ideal_loops.hpp"

namespace attune::lab {
namespace {

constexpr auto log2_e = std::numbers::log2e_v<double>;

// Mean square of the relative error of rounding to float32, for significands spread evenly over the octave's logarithm.
constexpr double float32_variance = 0.18 * 0x1p-48;

// A sink that outweighs every key by 2^90 leaves an output that float32 arithmetic cannot resolve: weights so small lie
// next to, or below, its smallest normal number.
constexpr double outweighed_log2 = 90;

// Of such a sink no more than this counts: O is 0 in every type by then, and the square of the sum of weights finite.
constexpr double most_log2 = 500;

// One KV head of one sequence as float32, keys transposed so that the score loop runs over keys.
struct Panel {
  Sequence sequence;
  std::vector<float> keys;    // dim_qk x seq_k
  std::vector<float> values;  // seq_k x dim_v
};

Panel make_panel(const Tensors& t, int64_t batch, int64_t head_kv) {
  const Problem& p = t.problem;
  Panel panel{t.sequence(batch), {}, {}};
  const int64_t keys = panel.sequence.seq_k;
  panel.keys.resize(static_cast<size_t>(p.dim_qk * keys));
  panel.values.resize(static_cast<size_t>(keys * p.dim_v));
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t k = row_offset(p, p.k, batch, panel.sequence.first_row_k, j, head_kv);
    const int64_t v = row_offset(p, p.v, batch, panel.sequence.first_row_k, j, head_kv);
    for (int64_t c = 0; c < p.dim_qk; ++c)
      panel.keys[c * keys + j] = load_element(t[Operand::k].data(), p.dtype, k + c);
    for (int64_t c = 0; c < p.dim_v; ++c)
      panel.values[j * p.dim_v + c] = load_element(t[Operand::v].data(), p.dtype, v + c);
  }
  return panel;
}

// One row at a time; the scratch is kept between rows.
class RowMaker {
 public:
  RowMaker(const Tensors& tensors, const Panel& panel) : t_(tensors), p_(tensors.problem), panel_(panel) {
    const auto keys = static_cast<size_t>(panel.sequence.seq_k);
    scores_.resize(keys);
    partial_squares_.resize(keys);
    q_.resize(static_cast<size_t>(p_.dim_qk));
    sum_.resize(static_cast<size_t>(p_.dim_v));
    sum_f32_.resize(static_cast<size_t>(p_.dim_v));
    square_terms_.resize(static_cast<size_t>(p_.dim_v));
    cross_terms_.resize(static_cast<size_t>(p_.dim_v));
  }

  void make(const RowId& id, float* o, Ideal::Row& row) {
    std::fill_n(o, p_.dim_v, 0.0f);
    const Sequence& s = panel_.sequence;
    if (id.row >= s.seq_q) return;  // stored but not in use
    const KeyRange range = visible_keys(p_, id.row, s.seq_q, s.seq_k);
    if (range.end <= range.begin) return;
    for (int64_t c = 0; c < p_.dim_qk; ++c)
      q_[c] = load_element(t_[Operand::q].data(), p_.dtype,
                           row_offset(p_, p_.q, id.batch, s.first_row_q, id.row, id.head) + c);
    const int64_t count = range.end - range.begin;
    score_row(q_.data(), panel_.keys.data() + range.begin, s.seq_k, p_.dim_qk, count, scores_.data(),
              partial_squares_.data());
    to_exponents(id, range, row);
    finish(id, range, o, row);
  }

 private:
  static constexpr float hidden = -std::numeric_limits<float>::infinity();

  // Turns scores_ into the exponent of 2 before the maximum is taken off: factor_ * scores_, hidden keys at -inf.
  void to_exponents(const RowId& id, const KeyRange& range, Ideal::Row& row) {
    const bool plain = p_.softcap == 0 && !p_.has(ATTUNE_BIAS);
    factor_ = static_cast<float>(plain ? static_cast<double>(p_.scale) * log2_e : log2_e);
    for (int64_t j = range.begin; j < range.end; ++j) {
      float& score = scores_[j - range.begin];
      if (p_.has(ATTUNE_MASK) && t_[Operand::mask].as<uint8_t>()[score_offset(p_.mask, id, j)] == 0) {
        score = std::numeric_limits<float>::quiet_NaN();  // told apart from any score by finish()
        continue;
      }
      row.max_logit = std::max(row.max_logit, std::abs(static_cast<double>(p_.scale) * static_cast<double>(score)));
      if (plain) continue;
      score *= p_.scale;
      if (p_.softcap != 0) score = p_.softcap * std::tanh(score / p_.softcap);
      if (p_.has(ATTUNE_BIAS))
        score += load_element(t_[Operand::bias].data(), p_.bias_dtype, score_offset(p_.bias, id, j));
    }
  }

  static int64_t score_offset(const attune_score_strides& s, const RowId& id, int64_t key) {
    return id.batch * s.batch + id.head * s.head + id.row * s.query + key * s.key;
  }

  void finish(const RowId& id, const KeyRange& range, float* o, Ideal::Row& row) {
    const int64_t count = range.end - range.begin;
    float top = hidden;
    for (int64_t j = 0; j < count; ++j)
      if (!std::isnan(scores_[j])) top = std::max(top, scores_[j] * factor_);
    if (top == hidden) return;

    std::ranges::fill(sum_, 0.0);
    std::ranges::fill(sum_f32_, 0.0f);
    std::ranges::fill(square_terms_, 0.0);
    std::ranges::fill(cross_terms_, 0.0);
    double denominator = 0, denominator_variance = 0, logit_variances = 0;
    float largest_value = 0;
    for (int64_t j = 0; j < count; ++j) {
      if (std::isnan(scores_[j])) continue;
      const float t = std::fma(scores_[j], factor_, -top);
      const KeyTerms key = terms_of(t, partial_squares_[j], top);
      const float* value = panel_.values.data() + (range.begin + j) * p_.dim_v;
      for (int64_t c = 0; c < p_.dim_v; ++c) largest_value = std::max(largest_value, std::abs(value[c]));
      if (key.p == 0) continue;
      logit_variances += key.logit_variance;
      if (p_.dtype == Dtype::f32) {
        denominator = static_cast<float>(denominator) + key.p;
        denominator_variance += float32_variance * square(denominator);
        add_key(key, float32_variance, value, p_.dim_v, sum_f32_.data(), square_terms_.data(), cross_terms_.data());
      } else {
        denominator += static_cast<double>(key.p);
        add_key(key, value, p_.dim_v, sum_.data(), square_terms_.data(), cross_terms_.data());
      }
    }
    if (p_.dtype == Dtype::f32) std::ranges::copy(sum_f32_, sum_.begin());
    if (p_.has(ATTUNE_SINK)) {
      const double sink =
          static_cast<double>(t_[Operand::sink].as<float>()[id.head]) * log2_e - static_cast<double>(top);
      denominator += std::exp2(std::min(sink, most_log2));
      // A float32 kernel rounds the sink's weight, the rescaled sum and their sum.
      if (p_.dtype == Dtype::f32) denominator_variance += 3 * float32_variance * square(denominator);
      if (sink > outweighed_log2) row.sigma = static_cast<double>(largest_value) * std::exp2(-sink);
      row.expected_energy = static_cast<double>(p_.dim_v) * square(row.sigma);
    }
    for (int64_t c = 0; c < p_.dim_v; ++c) {
      const double exact = sum_[c] / denominator;
      o[c] = static_cast<float>(round_to(p_.dtype, exact));
      // A changed logit changes numerator and denominator: its effect is proportional to v - O.
      const double terms =
          square_terms_[c] - 2 * exact * cross_terms_[c] + square(exact) * (logit_variances + denominator_variance);
      const double variance = std::max(terms, 0.0) / square(denominator);
      row.sigma = std::max(row.sigma, std::sqrt(variance));
      row.expected_energy += variance;
      // A single key, or equal ones, may leave nothing to round.
      if (static_cast<double>(o[c]) != exact) row.expected_energy += square(ulp_at(p_.dtype, exact)) / 12;
    }
  }

  // The weight exp2(t), and how far its roundings spread it. The logit has passed through float32 sums, the squares of
  // whose partial results are given, and differences with the row maximum.
  KeyTerms terms_of(float t, float partial_squares, float top) const {
    KeyTerms terms;
    terms.p = round_to(p_.dtype, std::exp2(t));
    const double top_logit = static_cast<double>(top) / log2_e;
    terms.logit_variance = square(terms.p) * float32_variance *
                           (square(p_.scale) * static_cast<double>(partial_squares) + 2 * square(top_logit) + 1);
    // Next to 1, where the largest weights are, what rounding takes is known: all that they miss it by.
    if (p_.dtype != Dtype::f32)
      terms.rounding_variance =
          terms.p == 1 ? square(static_cast<double>(t) * std::numbers::ln2) : square(ulp_at(p_.dtype, terms.p)) / 12;
    return terms;
  }

  static double square(double x) { return x * x; }

  const Tensors& t_;
  const Problem& p_;
  const Panel& panel_;
  std::vector<float> q_, scores_, partial_squares_, sum_f32_;
  std::vector<double> sum_, square_terms_, cross_terms_;
  float factor_ = 0;
};

struct Group {
  size_t begin, end;  // rows that share a panel
};

// Rows are sorted by batch and head, so those of one KV head lie together.
std::vector<Group> groups_of(std::span<const RowId> rows, int64_t heads_per_kv) {
  std::vector<Group> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool same = !groups.empty() && rows[groups.back().begin].batch == rows[i].batch &&
                      rows[groups.back().begin].head / heads_per_kv == rows[i].head / heads_per_kv;
    if (same)
      groups.back().end = i + 1;
    else
      groups.push_back({i, i + 1});
  }
  return groups;
}

}  // namespace

Ideal ideal_attention(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads) {
  const Problem& p = tensors.problem;
  Ideal ideal;
  ideal.dim = p.dim_v;
  ideal.ids.assign(rows.begin(), rows.end());
  ideal.o.resize(rows.size() * static_cast<size_t>(p.dim_v));
  ideal.rows.resize(rows.size());
  const auto groups = groups_of(rows, p.group());
  constexpr size_t chunk = 16;  // rows of a group that one thread takes at a time
  for (const Group& group : groups) {
    const Panel panel = make_panel(tensors, rows[group.begin].batch, rows[group.begin].head / p.group());
    const size_t chunks = (group.end - group.begin + chunk - 1) / chunk;
    threads.parallel_for(static_cast<int64_t>(chunks), [&](int64_t index) {
      RowMaker maker(tensors, panel);
      const size_t begin = group.begin + static_cast<size_t>(index) * chunk;
      for (size_t i = begin; i < std::min(begin + chunk, group.end); ++i)
        maker.make(rows[i], ideal.o.data() + i * static_cast<size_t>(p.dim_v), ideal.rows[i]);
    });
  }
  return ideal;
}

}  // namespace attune::lab
