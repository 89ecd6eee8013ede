// Ideal of the gradients: what a kernel gives that does everything right in the precision a fused kernel has.
//
// It is given o and lse, which are rounded, as a kernel is. Scores and dp = dout.v are summed in float32 in the order
// of the channels; t = x - lse is rounded to float32, p = exp(t); delta = dout.o, less dlse; g = p * (dp - delta) in
// float32. p and the gradients of q.k are rounded to the dtype before the products that make dv, dq and dk, as tensor
// cores want them; dbias and dsink are made of what is not rounded. Sums run in float64 and are rounded once. For f32
// nothing is rounded further, and the sums of dq, dk and dv run in float32.
//
// Beside each result stands what rounding was bound to cost it (Ideal::Row). A wrong delta or lse spoils a whole row of
// scores in one direction, so those two are added along the row before they are squared; the others are independent.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/reference_backward.hpp"
#include "lab/check/dtype.hpp"
#include "lab/check/ideal.hpp"
#include "lab/check/ideal_loops.hpp"

namespace attune::lab {
namespace {

// Mean square of the relative error of rounding to float32.
constexpr double rounding_of_float = 0.18 * 0x1p-48;

// And that of rounding below its normal numbers.
constexpr double rounding_of_subnormal = 0x1p-298 / 12;

// Weights below the normal numbers of float32 may count as 0.
constexpr float smallest_weight = 0x1p-125f;

double squared(double x) { return x * x; }

// The variance that rounding brings. A single key, or equal ones, may leave nothing to round.
double of_rounding(Dtype dtype, double exact, double rounded) {
  return rounded == exact ? 0 : squared(ulp_at(dtype, exact)) / 12;
}

// Sums of the rows of one output, and the variances of their errors.
class Sums {
 public:
  Sums(const Problem& problem, const RowChoice& choice)
      : output_(choice.output),
        ids_(choice.rows),
        dim_(row_space(problem, choice.output).dim),
        in_float_(problem.dtype == Dtype::f32 && choice.output != Operand::dbias && choice.output != Operand::dsink),
        dtype_(dtype_of(problem, choice.output)),
        values_(ids_.size() * static_cast<size_t>(dim_)),
        variances_(values_.size()),
        max_logits_(ids_.size()) {}

  Operand output() const { return output_; }

  // The place of a row, or -1 if it was not chosen.
  int64_t find(const RowId& id) const {
    const auto found = std::ranges::lower_bound(ids_, id);
    return found == ids_.end() || *found != id ? -1 : found - ids_.begin();
  }

  void add(int64_t row, int64_t element, double value, double variance) {
    const auto at = static_cast<size_t>(row * dim_ + element);
    values_[at] += value;
    variances_[at] += variance;
    if (!in_float_) return;
    values_[at] = static_cast<float>(values_[at]);
    variances_[at] += rounding_of_float * squared(values_[at]) + rounding_of_subnormal;
  }
  void spread(int64_t row, int64_t element, double variance) {
    variances_[static_cast<size_t>(row * dim_ + element)] += variance;
  }
  void note_logit(int64_t row, double logit) {
    double& most = max_logits_[static_cast<size_t>(row)];
    most = std::max(most, logit);
  }

  Ideal ideal(double factor) const {
    Ideal ideal;
    ideal.dim = dim_;
    ideal.ids = ids_;
    ideal.rows.resize(ids_.size());
    for (size_t i = 0; i < ids_.size(); ++i) {
      Ideal::Row& row = ideal.rows[i];
      row.max_logit = max_logits_[i];
      for (size_t c = 0; c < static_cast<size_t>(dim_); ++c) {
        const size_t at = i * static_cast<size_t>(dim_) + c;
        const double exact = values_[at] * factor, variance = variances_[at] * squared(factor);
        ideal.o.push_back(static_cast<float>(round_to(dtype_, exact)));
        row.sigma = std::max(row.sigma, std::sqrt(variance));
        row.expected_energy += variance;
        row.expected_energy += of_rounding(dtype_, exact, ideal.o.back());
      }
    }
    return ideal;
  }

 private:
  const Operand output_;
  const std::vector<RowId> ids_;
  const int64_t dim_;
  const bool in_float_;
  const Dtype dtype_;
  std::vector<double> values_, variances_, max_logits_;
};

// The keys and values of a KV head as floats, by rows and by columns.
struct Keys {
  std::vector<float> k, v, k_columns, v_columns;
};

class HeadMaker {
 public:
  HeadMaker(const Tensors& tensors, const cpu::ReferenceHead& truth, const Keys& keys, int64_t batch, int64_t head,
            std::vector<Sums>& sums)
      : t_(tensors),
        p_(tensors.problem),
        truth_(truth),
        keys_(keys),
        batch_(batch),
        head_(head),
        sums_(sums),
        count_(static_cast<size_t>(truth.sequence().seq_k)),
        s_(count_),
        s_squares_(count_),
        dp_(count_),
        dp_squares_(count_),
        q_(static_cast<size_t>(p_.dim_qk)),
        dout_(static_cast<size_t>(p_.dim_v)) {}

  void add_row(int64_t row) {
    if (truth_.lse(row) == -std::numeric_limits<double>::infinity()) return;
    const Sequence& s = truth_.sequence();
    for (int64_t c = 0; c < p_.dim_qk; ++c)
      q_[c] =
          load_element(t_[Operand::q].data(), p_.dtype, row_offset(p_, p_.q, batch_, s.first_row_q, row, head_) + c);
    for (int64_t c = 0; c < p_.dim_v; ++c)
      dout_[c] = load_element(t_[Operand::dout].data(), p_.dtype,
                              row_offset(p_, p_.dout, batch_, s.first_row_q, row, head_) + c);
    find_row_values(row);
    score_row(q_.data(), keys_.k_columns.data(), s.seq_k, p_.dim_qk, s.seq_k, s_.data(), s_squares_.data());
    score_row(dout_.data(), keys_.v_columns.data(), s.seq_k, p_.dim_v, s.seq_k, dp_.data(), dp_squares_.data());
    scores_.clear();
    for (int64_t j = 0; j < s.seq_k; ++j)
      if (truth_.sees(row, j)) scores_.push_back(score(row, j));
    for (Sums& sums : sums_) {
      if (sums.output() == Operand::dq) add_to_dq(sums, row);
      if (sums.output() == Operand::dk) add_to_key(sums, q_, true);
      if (sums.output() == Operand::dv) add_to_key(sums, dout_, false);
      if (sums.output() == Operand::dsink) add_to_sink(sums);
      if (sums.output() == Operand::dbias) add_to_bias(sums, row);
    }
  }

 private:
  struct Score {
    int64_t key = 0;
    double p = 0, g = 0, slope = 1;
    double s = 0;  // the gradient of q.k but for the scale: g * slope, rounded
    double rounded_p = 0;
    double p_variance = 0, g_variance = 0;  // of errors that are independent of other scores' of the row
    double p_rounding = 0, s_rounding = 0;  // of rounding to the dtype
    double logit = 0;
  };

  void find_row_values(int64_t row) {
    const int64_t first = truth_.sequence().first_row_q;
    lse_ = t_[Operand::lse].as<float>()[row_offset(p_, p_.lse, batch_, first, row, head_)];
    const int64_t o_at = row_offset(p_, p_.o, batch_, first, row, head_);
    // Near a rounded lse a kernel rounds the exponent once more.
    lse_variance_ = 4 * rounding_of_float * (squared(lse_) + 1);
    delta_ = delta_variance_ = 0;
    for (int64_t c = 0; c < p_.dim_v; ++c) {
      const double exact = truth_.o(row)[c], o = load_element(t_[Operand::o].data(), p_.dtype, o_at + c);
      delta_ += static_cast<double>(dout_[c]) * o;
      delta_variance_ += squared(dout_[c]) * of_rounding(p_.dtype, exact, o);
      delta_variance_ += rounding_of_float * squared(delta_);
    }
    if (p_.has(ATTUNE_DLSE))
      delta_ -= static_cast<double>(t_[Operand::dlse].as<float>()[row_offset(p_, p_.dlse, batch_, first, row, head_)]);
    delta_ = static_cast<float>(delta_);
    delta_variance_ += rounding_of_float * squared(delta_);
  }

  Score score(int64_t row, int64_t key) const {
    Score score;
    score.key = key;
    float x = s_[key] * p_.scale;
    score.logit = std::abs(static_cast<double>(x));
    if (p_.softcap != 0) {
      const float capped = std::tanh(x / p_.softcap);
      x = p_.softcap * capped;
      score.slope = 1.0f - capped * capped;
    }
    if (p_.has(ATTUNE_BIAS))
      x += load_element(t_[Operand::bias].data(), p_.bias_dtype,
                        batch_ * p_.bias.batch + head_ * p_.bias.head + row * p_.bias.query + key * p_.bias.key);
    const float t = x - static_cast<float>(lse_);
    const float p = std::exp(t);
    const float difference = dp_[key] - static_cast<float>(delta_);
    const float g = p * difference;
    score.p = p;
    score.g = g;
    const double relative = rounding_of_float * (squared(p_.scale) * static_cast<double>(s_squares_[key]) +
                                                 2 * squared(x) + squared(t) + 1);
    score.p_variance = squared(p) * relative;
    score.g_variance = squared(g) * (relative + 2 * rounding_of_float) +
                       squared(p) * rounding_of_float * (static_cast<double>(dp_squares_[key]) + squared(difference)) +
                       (squared(p) * static_cast<double>(p_.dim_v) + 1) * rounding_of_subnormal;
    if (p < smallest_weight) {
      const double weight = std::exp(static_cast<double>(t));
      score.p_variance += squared(weight);
      score.g_variance += squared(weight * static_cast<double>(difference));
    }
    // 1 - t^2 is off by what t is, near 1 by much of itself. It multiplies g with its errors: where the slope should be
    // 0, they are all there is.
    const double slope_variance =
        p_.softcap != 0 ? 8 * rounding_of_float * (squared(g) + score.g_variance + squared(p) * delta_variance_) : 0;
    const float s = g * static_cast<float>(score.slope);
    score.s = round_to(p_.dtype, s);
    score.rounded_p = round_to(p_.dtype, p);
    score.s_rounding = slope_variance;
    score.p_rounding = of_rounding(p_.dtype, p, score.rounded_p);
    score.s_rounding += of_rounding(p_.dtype, s, score.s);
    return score;
  }

  void add_to_dq(Sums& sums, int64_t row) const {
    const int64_t at = sums.find({batch_, head_, row});
    if (at < 0) return;
    for (int64_t c = 0; c < p_.dim_qk; ++c) {
      double along_delta = 0, along_lse = 0;
      for (const Score& score : scores_) {
        const double k = keys_.k[static_cast<size_t>(score.key * p_.dim_qk + c)];
        sums.add(at, c, score.s * k, (score.g_variance * squared(score.slope) + score.s_rounding) * squared(k));
        along_delta += score.p * score.slope * k;
        along_lse += score.s * k;
      }
      sums.spread(at, c, delta_variance_ * squared(along_delta) + lse_variance_ * squared(along_lse));
    }
    for (const Score& score : scores_) sums.note_logit(at, score.logit);
  }

  void add_to_key(Sums& sums, const std::vector<float>& row_values, bool of_products) const {
    for (const Score& score : scores_) {
      const int64_t at = sums.find({batch_, head_ / p_.group(), score.key});
      if (at < 0) continue;
      const double factor = of_products ? score.s : score.rounded_p;
      const double variance =
          of_products ? (score.g_variance + delta_variance_ * squared(score.p) + lse_variance_ * squared(score.g)) *
                                squared(score.slope) +
                            score.s_rounding
                      : score.p_variance + lse_variance_ * squared(score.p) + score.p_rounding;
      for (size_t c = 0; c < row_values.size(); ++c) {
        const double value = row_values[c];
        sums.add(at, static_cast<int64_t>(c), factor * value, variance * squared(value));
      }
      sums.note_logit(at, score.logit);
    }
  }

  void add_to_sink(Sums& sums) const {
    const int64_t at = sums.find({0, head_, 0});
    if (at < 0) return;
    const double weight = std::exp(static_cast<double>(t_[Operand::sink].as<float>()[head_]) - lse_);
    sums.add(at, 0, -weight * delta_,
             squared(weight) * (delta_variance_ + squared(delta_) * (lse_variance_ + 2 * rounding_of_float)));
    for (const Score& score : scores_) sums.note_logit(at, score.logit);
  }

  void add_to_bias(Sums& sums, int64_t row) const {
    const attune_score_strides& strides = p_.dbias;
    const auto place = [](int64_t stride, int64_t index) { return stride == 0 ? 0 : index; };
    const int64_t at = sums.find({place(strides.batch, batch_), place(strides.head, head_), place(strides.query, row)});
    if (at < 0) return;
    double along_delta = 0, along_lse = 0;
    for (const Score& score : scores_) {
      sums.add(at, place(strides.key, score.key), score.g, score.g_variance);
      if (strides.key == 0) {
        along_delta += score.p;
        along_lse += score.g;
      } else {
        sums.spread(at, score.key, delta_variance_ * squared(score.p) + lse_variance_ * squared(score.g));
      }
      sums.note_logit(at, score.logit);
    }
    if (strides.key == 0)
      sums.spread(at, 0, delta_variance_ * squared(along_delta) + lse_variance_ * squared(along_lse));
  }

  const Tensors& t_;
  const Problem& p_;
  const cpu::ReferenceHead& truth_;
  const Keys& keys_;
  const int64_t batch_, head_;
  std::vector<Sums>& sums_;
  const size_t count_;
  std::vector<float> s_, s_squares_, dp_, dp_squares_, q_, dout_;
  double lse_ = 0, lse_variance_ = 0, delta_ = 0, delta_variance_ = 0;  // of the row
  std::vector<Score> scores_;
};

Keys load_keys(const Tensors& t, int64_t batch, int64_t head_kv) {
  const Problem& p = t.problem;
  const Sequence s = t.sequence(batch);
  Keys keys;
  const auto load = [&](Operand operand, const attune_strides& strides, int64_t dim, std::vector<float>& rows,
                        std::vector<float>& columns) {
    rows.resize(static_cast<size_t>(s.seq_k * dim));
    columns.resize(rows.size());
    for (int64_t j = 0; j < s.seq_k; ++j)
      for (int64_t c = 0; c < dim; ++c)
        rows[j * dim + c] = columns[c * s.seq_k + j] =
            load_element(t[operand].data(), p.dtype, row_offset(p, strides, batch, s.first_row_k, j, head_kv) + c);
  };
  load(Operand::k, p.k, p.dim_qk, keys.k, keys.k_columns);
  load(Operand::v, p.v, p.dim_v, keys.v, keys.v_columns);
  return keys;
}

}  // namespace

std::vector<Ideal> ideal_gradients(const Tensors& tensors, std::span<const RowChoice> outputs, cpu::Threads& threads) {
  const Problem& p = tensors.problem;
  const Operands inputs = tensors.input_operands();
  std::vector<Sums> sums;
  for (const RowChoice& choice : outputs) sums.emplace_back(p, choice);
  const auto add_heads = [&](int64_t batch, int64_t head_kv) {
    const Keys keys = load_keys(tensors, batch, head_kv);
    for (int64_t head = head_kv * p.group(); head < (head_kv + 1) * p.group(); ++head) {
      const cpu::ReferenceHead truth(p, inputs, batch, head);
      HeadMaker maker(tensors, truth, keys, batch, head, sums);
      for (int64_t row = 0; row < truth.sequence().seq_q; ++row) maker.add_row(row);
    }
  };
  // dsink and dbias may be sums over all heads and batches: those of one order.
  const int64_t groups = p.batch * p.heads_kv;
  if (p.has(ATTUNE_DSINK) || p.has(ATTUNE_DBIAS))
    for (int64_t i = 0; i < groups; ++i) add_heads(i / p.heads_kv, i % p.heads_kv);
  else
    threads.parallel_for(groups, [&](int64_t i) { add_heads(i / p.heads_kv, i % p.heads_kv); });

  std::vector<Ideal> all;
  for (const Sums& of : sums)
    all.push_back(of.ideal(of.output() == Operand::dq || of.output() == Operand::dk ? p.scale : 1.0));
  return all;
}

}  // namespace attune::lab
