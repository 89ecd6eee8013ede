// What a score is to the softmax: its unit, softcap and bias. One rule for host and device, so that a kernel that
// scores a block twice cannot score it differently the second time. The references have their own (core,
// kernels/any/reference).
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

// What becomes of the product of a row of Q and a row of K. Without softcap and bias a logit stays that product, in
// units of |scale|, so that a huge scale cannot overflow and differences lose nothing. Where a scale is so huge that
// exp2_factor would overflow, the logit is twice the product, in units of half of |scale|. Otherwise its unit is 1.
template <typename Real>
struct ScoreRule {
  bool is_capped, is_biased;
  Real sign;  // times the products in a logit
  Real scale, cap;
  double unit;       // natural logits per unit of a logit
  Real exp2_factor;  // exp(unit * (a - b)) = exp2((a - b) * exp2_factor)

  ATTUNE_SHARED_CODE bool is_plain() const { return !is_capped && !is_biased; }
};

template <typename Real>
ATTUNE_SHARED_CODE ScoreRule<Real> score_rule(double scale, double softcap, bool is_capped, bool is_biased) {
  constexpr double log2_e = 1.4426950408889634074;
  const double magnitude = scale < 0 ? -scale : scale;
  const int products = magnitude > 2e38 ? 2 : 1;
  ScoreRule<Real> rule{};
  rule.is_capped = is_capped;
  rule.is_biased = is_biased;
  rule.sign = static_cast<Real>(scale < 0 ? -products : products);
  rule.scale = static_cast<Real>(scale);
  rule.cap = static_cast<Real>(softcap);
  rule.unit = rule.is_plain() ? magnitude / products : 1.0;
  rule.exp2_factor = static_cast<Real>(rule.unit * log2_e);
  return rule;
}

#ifdef ATTUNE_DEVICE

// `bias` is not looked at unless the rule has one; -inf hides the key.
template <typename Real>
ATTUNE_DEVICE Real logit_of(const ScoreRule<Real>& rule, Real product, float bias) {
  if (rule.is_plain()) return rule.sign * product;
  Real logit = rule.scale * product;
  if (rule.is_capped) logit = rule.cap * tanh(logit / rule.cap);
  if (rule.is_biased) {
    // Two overflows must not meet as inf - inf in the softmax.
    const Real limit = 3.0e38f;
    logit = fmin(fmax(logit, -limit), limit) + bias;
  }
  return logit;
}

#endif

}  // namespace attune::device
