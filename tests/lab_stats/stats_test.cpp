// The statistics one by one, against values worked out by hand or from tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"
#include "lab/stats/binomial.hpp"
#include "lab/stats/interval.hpp"
#include "lab/stats/random.hpp"
#include "lab/stats/summary.hpp"
#include "lab/stats/table.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab::stats {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

// `count` ratios spread evenly over centre +- half_width, shuffled.
std::vector<double> spread(double centre, double half_width, int count = 15) {
  std::vector<double> ratios;
  for (int i = 0; i < count; ++i) ratios.push_back(centre + half_width * (2.0 * i / (count - 1) - 1));
  Random(7).shuffle(ratios);
  return ratios;
}

TEST(Summary, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 2.0, 9.0}), 3);
  EXPECT_EQ(median(std::vector{5.0}), 5);
}

TEST(Summary, RefusesWhatHasNoMedian) {
  EXPECT_THROW(median(std::vector<double>{}), Error);
  EXPECT_THROW(median(std::vector{1.0, std::numeric_limits<double>::quiet_NaN()}), Error);
}

TEST(Summary, RelativeStdAndGeometricMean) {
  EXPECT_THAT(relative_std(std::vector{9.0, 10.0, 11.0}), DoubleNear(0.1, 1e-15));
  EXPECT_EQ(relative_std(std::vector{3.0}), 0);
  EXPECT_THAT(geometric_mean(std::vector{0.5, 2.0, 8.0}), DoubleNear(2, 1e-12));
  EXPECT_THROW(geometric_mean(std::vector{1.0, 0.0}), Error);
  EXPECT_THROW(relative_std(std::vector{1.0, -1.0}), Error);
}

TEST(OrderInterval, RanksOfTheTextbook) {
  EXPECT_EQ(order_ranks(15).rank, 4);
  EXPECT_THAT(order_ranks(15).coverage, DoubleNear(1 - 2 * 576.0 / 32768, 1e-12));
  EXPECT_EQ(order_ranks(21).rank, 6);
  EXPECT_THAT(order_ranks(21).coverage, DoubleNear(0.9734, 1e-4));
  EXPECT_EQ(order_ranks(9).rank, 2);
  EXPECT_EQ(order_ranks(31).rank, 10);
  EXPECT_EQ(order_ranks(6).rank, 1);
  EXPECT_THAT(order_ranks(6).coverage, DoubleNear(1 - 2.0 / 64, 1e-12));
}

TEST(OrderInterval, TooFewRoundsSaySoInTheirCoverage) {
  EXPECT_EQ(order_ranks(5).rank, 1);
  EXPECT_THAT(order_ranks(5).coverage, DoubleNear(0.9375, 1e-12));
  EXPECT_THAT(order_ranks(1).coverage, DoubleNear(0, 1e-12));
}

TEST(OrderInterval, TakesTheFourthAndTwelfthOfFifteen) {
  std::vector<double> values(15);
  std::iota(values.begin(), values.end(), 1.0);
  Random(3).shuffle(values);
  const Interval interval = order_interval(values);
  EXPECT_EQ(interval.lower, 4);
  EXPECT_EQ(interval.upper, 12);
}

TEST(OrderInterval, CoverageIsWhatItSaysAndNeverShortFromSixOn) {
  for (int count = 6; count <= 200; ++count) {
    const OrderRanks ranks = order_ranks(count);
    ASSERT_GE(ranks.coverage, 0.95) << count;
    if (2 * (ranks.rank + 1) <= count) {
      ASSERT_LT(1 - 2 * fair_coin_at_most(count, ranks.rank), 0.95) << count << ": a narrower pair would do";
    }
  }
  for (const int count : {8, 15, 40}) {
    Random random(count);
    int held = 0;
    for (int run = 0; run < 4000; ++run) {
      std::vector<double> values;
      for (int i = 0; i < count; ++i) values.push_back(std::exp(random.normal()));  // median 1, skewed
      held += order_interval(values).contains(1);
    }
    EXPECT_THAT(held / 4000.0, DoubleNear(order_ranks(count).coverage, 0.012)) << count;
  }
}

TEST(Bootstrap, IsTheSameForTheSameSeedAndHoldsTheMedian) {
  const std::vector<double> values = spread(10, 1);
  const Interval first = bootstrap_median(values, 5), again = bootstrap_median(values, 5);
  EXPECT_EQ(first.lower, again.lower);
  EXPECT_EQ(first.upper, again.upper);
  EXPECT_TRUE(first.contains(10));
  EXPECT_GT(first.half_width(), 0.1);
  EXPECT_LT(first.half_width(), 1);
  const auto mean = [&](std::span<const int> rounds) {
    double sum = 0;
    for (const int round : rounds) sum += values[round];
    return sum / static_cast<double>(rounds.size());
  };
  EXPECT_NE(bootstrap(15, mean, 5).lower, bootstrap(15, mean, 6).lower) << "the seed decides what is drawn";
}

TEST(Verdict, ClearIntervalsAreClaims) {
  EXPECT_EQ(judge(spread(0.9, 0.01), {}, {}).outcome, Outcome::faster);
  EXPECT_EQ(judge(spread(1.1, 0.01), {}, {}).outcome, Outcome::slower);
}

TEST(Verdict, SameNeedsTheWholeIntervalWithinDelta) {
  EXPECT_EQ(judge(spread(1, 0.005), {}, {}).outcome, Outcome::same);
  EXPECT_EQ(judge(spread(1, 0.05), {}, {}).outcome, Outcome::unclear);
  EXPECT_EQ(judge(spread(1, 0.05), {}, {.delta = 0.05}).outcome, Outcome::same);
}

TEST(Verdict, AnEffectBelowHalfDeltaIsNoClaim) {
  const Verdict small = judge(spread(1.003, 0.001), {}, {});
  EXPECT_EQ(small.outcome, Outcome::same) << small.reason;
  EXPECT_EQ(judge(spread(1.003, 0.001), {}, {.delta = 0.004}).outcome, Outcome::slower);
}

TEST(Verdict, TimeDecidesAndCyclesStandBeside) {
  const auto faster = spread(0.95, 0.005);
  const Verdict by_kernel = judge(faster, spread(0.95, 0.005), {});
  EXPECT_EQ(by_kernel.outcome, Outcome::faster);
  EXPECT_THAT(by_kernel.reason, testing::Not(HasSubstr("cycles")));
  for (const double in_cycles : {1.0, 1.05}) {
    const Verdict by_clock = judge(faster, spread(in_cycles, 0.005), {});
    EXPECT_EQ(by_clock.outcome, Outcome::faster);
    EXPECT_THAT(by_clock.reason, HasSubstr("the difference is the clock's"));
    EXPECT_THAT(*by_clock.cycle_estimate, DoubleNear(in_cycles, 1e-9));
  }
  EXPECT_EQ(judge(spread(1, 0.005), spread(0.95, 0.005), {}).outcome, Outcome::same) << "only the clock was lower";
}

TEST(Verdict, TooFewRoundsProveNothing) {
  const Verdict verdict = judge(spread(2, 0.01, 5), {}, {});
  EXPECT_EQ(verdict.outcome, Outcome::unclear);
  EXPECT_THAT(verdict.reason, HasSubstr("5 rounds"));
  EXPECT_EQ(judge(spread(2, 0.01, 6), {}, {}).outcome, Outcome::slower);
}

TEST(Verdict, NamesRoundTrip) {
  for (const Outcome outcome : {Outcome::faster, Outcome::slower, Outcome::same, Outcome::unclear})
    EXPECT_EQ(outcome_from(name_of(outcome)), outcome);
  EXPECT_THROW(outcome_from("quicker"), Error);
}

TEST(Verdict, NonInferiorityLooksAtTheUpperEnd) {
  const Verdict verdict = judge(spread(1.0, 0.02), {}, {});
  EXPECT_TRUE(not_slower_by(verdict, 0.02));
  EXPECT_FALSE(not_slower_by(verdict, 0.005));
}

TEST(Verdict, BarIsMetByTheEstimateWithOnePerCentOfSlackForTheInterval) {
  EXPECT_TRUE(meets_bar(judge(spread(1 / 1.20, 0.001), {}, {}), 1.2));
  EXPECT_FALSE(meets_bar(judge(spread(1 / 1.19, 0.001), {}, {}), 1.2)) << "the estimate is short";
  EXPECT_FALSE(meets_bar(judge(spread(1 / 1.21, 0.1), {}, {}), 1.2)) << "the interval reaches too low";
}

TEST(SignTest, ExactValues) {
  EXPECT_THAT(sign_test(spread(2, 0.1)), DoubleNear(2 * std::pow(0.5, 15), 1e-15));
  std::vector<double> ratios(15, 2.0);
  for (int i = 0; i < 3; ++i) ratios[i] = 0.5;
  EXPECT_THAT(sign_test(ratios), DoubleNear(2 * 576.0 / 32768, 1e-12));
  EXPECT_EQ(sign_test(std::vector(15, 1.0)), 1) << "ties count against a difference";
  EXPECT_THAT(sign_test_above(ratios, 1), DoubleNear(576.0 / 32768, 1e-12));
  EXPECT_GT(sign_test_above(ratios, 2), 0.99);
}

TEST(Holm, WorkedExample) {
  EXPECT_THAT(
      holm(std::vector{0.01, 0.04, 0.03, 0.005}),
      ElementsAre(DoubleNear(0.03, 1e-12), DoubleNear(0.06, 1e-12), DoubleNear(0.06, 1e-12), DoubleNear(0.02, 1e-12)));
  EXPECT_THAT(holm(std::vector{0.9, 0.8}), ElementsAre(DoubleEq(1), DoubleEq(1)));
  EXPECT_TRUE(holm(std::vector<double>{}).empty());
  EXPECT_THROW(holm(std::vector{1.5}), Error);
}

TEST(Holm, ATableOfEqualRowsSeldomHoldsAClaim) {
  Random random(11);
  int tables_with_claims = 0, tables_without_correction = 0;
  constexpr int tables = 500, rows = 36;
  for (int table = 0; table < tables; ++table) {
    std::vector<double> p;
    for (int row = 0; row < rows; ++row) {
      std::vector<double> ratios;
      for (int i = 0; i < 15; ++i) ratios.push_back(std::exp(0.01 * random.normal()));
      p.push_back(sign_test(ratios));
    }
    const auto adjusted = holm(p);
    tables_with_claims += *std::min_element(adjusted.begin(), adjusted.end()) < 0.05;
    tables_without_correction += *std::min_element(p.begin(), p.end()) < 0.05;
  }
  EXPECT_LE(tables_with_claims, tables * 6 / 100);
  EXPECT_GE(tables_without_correction, tables * 50 / 100) << "why the correction is needed";
}

TEST(GeometricMeanRatio, KnownFactorsAndSharedRounds) {
  const TableRatio table = geometric_mean_ratio({spread(0.5, 0.001), spread(2, 0.001), spread(0.8, 0.001)}, 1);
  EXPECT_THAT(table.estimate, DoubleNear(std::cbrt(0.8), 1e-9));
  EXPECT_TRUE(table.interval.contains(table.estimate));

  // Two problems that are disturbed alike, and two whose disturbances cancel. Only a bootstrap that draws the same
  // rounds for both problems can tell these apart.
  std::vector<double> up, down;
  for (int i = 0; i < 15; ++i) {
    up.push_back(std::exp(0.01 * (i - 7)));
    down.push_back(std::exp(-0.01 * (i - 7)));
  }
  EXPECT_GT(geometric_mean_ratio({up, up}, 1).interval.half_width(), 0.01);
  EXPECT_LT(geometric_mean_ratio({up, down}, 1).interval.half_width(), 1e-9);
  EXPECT_THROW(geometric_mean_ratio({{1.0, 1.0}, {1.0}}, 1), Error);
  EXPECT_THROW(geometric_mean_ratio({}, 1), Error);
}

}  // namespace
}  // namespace attune::lab::stats
