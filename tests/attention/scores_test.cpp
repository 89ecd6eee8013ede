// The rule of kernels/attention for scores against the sentence of the header, in float64: scale, then softcap, then
// bias.
#include "tests/any/emulator.hpp"
// The emulator must come first.
#include <gtest/gtest.h>

#include "kernels/attention/scores.cuh"

namespace attune::device {
namespace {

constexpr double scales[] = {0.125, 1.0, -0.5, 1e-20, 1e20};
constexpr double products[] = {0, 1, -1, 3.5, -1000, 60000};

// In natural units; the logit of the rule is `unit` times that.
double natural_logit(const ScoreRule<double>& rule, double product, float bias) {
  return logit_of(rule, product, bias) * rule.unit;
}

void expect_close(double measured, double expected, const std::string& what) {
  EXPECT_NEAR(measured, expected, 1e-6 * std::abs(expected)) << what;
}

TEST(Scores, AreScaledCappedAndBiasedInThisOrder) {
  for (const double scale : scales)
    for (const double product : products)
      for (const bool is_capped : {false, true})
        for (const bool is_biased : {false, true}) {
          constexpr double cap = 50;
          constexpr float bias = -2.25f;
          const auto rule = score_rule<double>(scale, cap, is_capped, is_biased);
          double expected = scale * product;
          if (is_capped) expected = cap * std::tanh(expected / cap);
          if (is_biased) expected += bias;
          expect_close(natural_logit(rule, product, bias), expected,
                       "scale " + std::to_string(scale) + ", product " + std::to_string(product) +
                           (is_capped ? ", capped" : "") + (is_biased ? ", biased" : ""));
          EXPECT_EQ(rule.is_plain(), !is_capped && !is_biased);
        }
}

TEST(Scores, DifferencesOfLogitsArePowersOfTwo) {
  for (const double scale : {0.125, -0.5, 3.0})
    for (const bool is_capped : {false, true}) {
      const auto rule = score_rule<double>(scale, 30, is_capped, false);
      const double a = logit_of(rule, 2.0, 0.f), b = logit_of(rule, -1.0, 0.f);
      expect_close(std::exp2((a - b) * rule.exp2_factor), std::exp((a - b) * rule.unit), std::to_string(scale));
    }
}

// Scale and product may overflow float together; a bias of -inf still hides the key, and nothing becomes NaN.
TEST(Scores, OverflowsDoNotMeet) {
  const float infinite = std::numeric_limits<float>::infinity();
  const auto biased = score_rule<float>(1e30, 0, false, true);
  EXPECT_EQ(logit_of(biased, 1e30f, -infinite), -infinite);
  EXPECT_EQ(logit_of(biased, -1e30f, infinite), infinite);
  EXPECT_TRUE(std::isfinite(logit_of(biased, 1e30f, 0.f)));
  const auto plain = score_rule<float>(1e38, 0, false, false);
  EXPECT_EQ(logit_of(plain, 1e30f, infinite), 1e30f) << "it has no bias";
  EXPECT_TRUE(std::isfinite(plain.exp2_factor));
}

}  // namespace
}  // namespace attune::device
