// Statistics over a table of problems: searching it for a difference, and summing it up in one figure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/stats/interval.hpp"

namespace attune::lab::stats {

// Exact two-sided sign test of "the median ratio is `null`". A ratio equal to `null` counts against a difference.
double sign_test(std::span<const double> ratios, double null = 1);
// One-sided: small when the ratios lie above `null`, that is when the contender is slower than allowed.
double sign_test_above(std::span<const double> ratios, double null);

// Holm's adjusted p-values: searching a table of m rows for a difference and keeping those below 0.05 is wrong in at
// most 5 % of tables, however the rows depend on each other.
std::vector<double> holm(std::span<const double> p_values);

// Geometric mean over problems of the median ratio over rounds. Its interval resamples rounds, the same round index for
// every problem, since what disturbs a round disturbs all of it. ratios[problem][round], equally many rounds each.
struct TableRatio {
  double estimate = 0;
  Interval interval;
};
TableRatio geometric_mean_ratio(const std::vector<std::vector<double>>& ratios, uint64_t seed,
                                int resamples = default_resamples);

}  // namespace attune::lab::stats
