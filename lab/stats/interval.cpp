#include "lab/stats/interval.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "lab/stats/binomial.hpp"
#include "lab/stats/random.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab::stats {

OrderRanks order_ranks(int count, double wanted) {
  if (count < 1) fail(ATTUNE_INVALID_ARGUMENT, "order_ranks: count is {}; at least 1 is needed", count);
  if (!(wanted > 0 && wanted < 1)) fail(ATTUNE_INVALID_ARGUMENT, "order_ranks: coverage {} is not in (0, 1)", wanted);
  // The median lies outside when fewer than `rank` values fall on one side of it.
  const auto coverage_at = [&](int rank) { return 1 - 2 * fair_coin_at_most(count, rank - 1); };
  OrderRanks ranks{1, coverage_at(1)};
  while (2 * (ranks.rank + 1) <= count && coverage_at(ranks.rank + 1) >= wanted)
    ranks = {ranks.rank + 1, coverage_at(ranks.rank + 1)};
  return ranks;
}

Interval order_interval(std::span<const double> values, double wanted) {
  const OrderRanks ranks = order_ranks(static_cast<int>(values.size()), wanted);
  std::vector<double> sorted(values.begin(), values.end());
  for (const double value : sorted)
    if (!std::isfinite(value)) fail(ATTUNE_INVALID_ARGUMENT, "order_interval: a value is {}", value);
  std::sort(sorted.begin(), sorted.end());
  return {sorted[ranks.rank - 1], sorted[sorted.size() - ranks.rank], ranks.coverage};
}

Interval bootstrap(int count, const RoundStatistic& statistic, uint64_t seed, int resamples, double coverage) {
  if (count < 1) fail(ATTUNE_INVALID_ARGUMENT, "bootstrap: count is {}; at least 1 round is needed", count);
  if (resamples < 40) fail(ATTUNE_INVALID_ARGUMENT, "bootstrap: resamples is {}; at least 40 are needed", resamples);
  if (!(coverage > 0 && coverage < 1)) fail(ATTUNE_INVALID_ARGUMENT, "bootstrap: coverage {} not in (0, 1)", coverage);
  Random random(seed);
  std::vector<int> rounds(count);
  std::vector<double> statistics(resamples);
  for (double& value : statistics) {
    for (int& round : rounds) round = static_cast<int>(random.below(count));
    value = statistic(rounds);
  }
  std::sort(statistics.begin(), statistics.end());
  const auto cut = static_cast<size_t>((1 - coverage) / 2 * resamples);
  return {statistics[cut], statistics[statistics.size() - 1 - cut], coverage};
}

Interval bootstrap_median(std::span<const double> values, uint64_t seed, int resamples, double coverage) {
  std::vector<double> drawn(values.size());
  const auto statistic = [&](std::span<const int> rounds) {
    for (size_t i = 0; i < rounds.size(); ++i) drawn[i] = values[rounds[i]];
    return median(drawn);
  };
  return bootstrap(static_cast<int>(values.size()), statistic, seed, resamples, coverage);
}

}  // namespace attune::lab::stats
