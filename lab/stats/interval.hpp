// Intervals of a median over rounds: the exact one that verdicts are gated on, and the bootstrap that charts show.
//
// The unit is the round. Samples within a round are not independent, so nothing here may be given pooled samples:
// under the drift of a real card that calls equal kernels different in 4 of 10 runs (tests/lab_stats/drift_test.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace attune::lab::stats {

struct Interval {
  double lower = 0, upper = 0;
  double coverage = 0;  // probability that it holds the true value

  bool contains(double value) const { return lower <= value && value <= upper; }
  double half_width() const { return (upper - lower) / 2; }
};

constexpr double default_coverage = 0.95;

// Which order statistics of n values enclose the median: the `rank`-th smallest and the `rank`-th largest, counted from
// 1. The narrowest pair that still covers `wanted`; with too few values (below 6 for 95 %) the widest pair there is,
// whose coverage then says that it falls short. 15 values: the 4th and the 12th, 96.5 %.
struct OrderRanks {
  int rank = 1;
  double coverage = 0;
};
OrderRanks order_ranks(int count, double wanted = default_coverage);

// Holds for any distribution; needs only that the values are independent.
Interval order_interval(std::span<const double> values, double wanted = default_coverage);

constexpr int default_resamples = 2000;

// Percentile bootstrap: `statistic` of `resamples` draws of `count` round indices with replacement. Same seed, same
// interval, on every machine. Too narrow for few rounds (8 to 10 % false alarms at 15): for charts, not for verdicts.
using RoundStatistic = std::function<double(std::span<const int> rounds)>;
Interval bootstrap(int count, const RoundStatistic& statistic, uint64_t seed, int resamples = default_resamples,
                   double coverage = default_coverage);

// Of the median of one value per round.
Interval bootstrap_median(std::span<const double> values, uint64_t seed, int resamples = default_resamples,
                          double coverage = default_coverage);

}  // namespace attune::lab::stats
