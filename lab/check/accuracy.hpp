// The bounds of the gate, frozen in tests/accuracy.toml and compiled in from there. docs/accuracy.md gives the reasons.
#pragma once

#include <string_view>

#include "core/problem.hpp"

namespace attune::lab {

struct Accuracy {
  double rms_factor = 0;              // relative RMS of O, in multiples of Ideal's
  double rms_factor_f32 = 0;          // the same for f32
  double rms_factor_large_logit = 0;  // the same where max |scale * s| exceeds large_logit
  double large_logit = 0;
  double lse_bound = 0;    // |LSE - LSE64| / max(1, |LSE64|)
  double max_ulp_f16 = 0;  // largest error of an element, in units of the row (gate.hpp)
  double max_ulp_bf16 = 0;
  double max_ulp_f32 = 0;
  double high_factor = 0;  // ATTUNE_F32_HIGH: of the bounds of O
  double high_factor_lse = 0;

  // The bounds for this problem.
  Accuracy of(const Problem& problem) const {
    Accuracy accuracy = *this;
    if (!problem.has(ATTUNE_F32_HIGH)) return accuracy;
    accuracy.rms_factor_f32 *= high_factor;
    accuracy.rms_factor_large_logit *= high_factor;
    accuracy.max_ulp_f32 *= high_factor;
    accuracy.lse_bound *= high_factor_lse;
    return accuracy;
  }
  double rms_bound(Dtype dtype, double max_logit) const {
    if (max_logit > large_logit) return rms_factor_large_logit;
    return dtype == Dtype::f32 ? rms_factor_f32 : rms_factor;
  }
  double max_ulp(Dtype dtype) const {
    return dtype == Dtype::f16 ? max_ulp_f16 : dtype == Dtype::bf16 ? max_ulp_bf16 : max_ulp_f32;
  }
};

const Accuracy& frozen_accuracy();

// Throws ATTUNE_INVALID_ARGUMENT naming the key that is missing or not a positive number.
Accuracy accuracy_from(std::string_view toml);

}  // namespace attune::lab
