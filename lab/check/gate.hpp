// The gate: is this output as good as a fused kernel's output can be? Compares rows of o and lse, or of a gradient,
// with float64 and with Ideal (design: docs/accuracy.md). What is said of O holds for a gradient, too.
//
// - relative RMS of O: at most `rms_factor` times Ideal's on the same inputs. Where the comparison rests on few rows
//   (fewer than 256 that carry the error), Ideal's own error is a matter of luck, and where logits are large it can be
//   0 by grace of its float64 sums; there the error that rounding is expected to cause may take its place, with room
//   for the luck of few rows.
// - largest error of an element, in units of its row: one ulp at the row's largest |O|, or, where the terms of the sum
//   cancel or the logits are large, the spread that the rounding of p and s must cause (an ulp is sqrt(12) standard
//   deviations of a rounding).
//   Both are compared on the rows that have an Ideal; rows without one are held to ulps at their largest |O| alone.
// - LSE, and that it is -inf exactly where a row sees nothing, where O must be 0.
// - Gradients may leave the range of their type: an element that Ideal does not bring within it is not compared.
#pragma once

#include <string>

#include "lab/check/accuracy.hpp"
#include "lab/check/ideal.hpp"
#include "lab/check/reference.hpp"

namespace attune::lab {

struct Judgement {
  bool ok = true;
  Operand output = Operand::o;
  std::string failure;  // which rule was broken, "" if none
  double rel_rms = 0, rel_rms_ideal = 0, rel_rms_bound = 0;
  double max_ulp = 0, max_ulp_bound = 0;
  double lse_err = 0, lse_bound = 0;
  double max_logit = 0;
  RowId worst;  // the row with the largest error in its units, or where a rule was broken outright
  int64_t rows = 0, total_rows = 0;

  // Error over bound, the largest of the three: above 1 the case has failed.
  double strain() const;
  std::string_view strained_by() const;  // "rel_rms", "max_ulp" or "lse"
};

Judgement judge(const Tensors& outputs, const RowChoice& choice, const ReferenceRows& reference, const Ideal& ideal,
                const Accuracy& accuracy);

// Ideal's own largest error in units of its rows: what the max_ulp constants are calibrated from.
double max_ulp_of_ideal(const Tensors& tensors, const RowChoice& choice, const ReferenceRows& reference,
                        const Ideal& ideal);

// Rows that carry Ideal's expected error: their number if all are alike, fewer if a few dominate.
double effective_rows(const Ideal& ideal);

// The RMS (summed over elements, not divided) that rounding alone is expected to cause, times what the luck of few
// rows can make of it.
double expected_error_norm(const Ideal& ideal, double factor);

}  // namespace attune::lab
