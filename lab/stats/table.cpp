#include "lab/stats/table.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "lab/stats/binomial.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab::stats {

double sign_test(std::span<const double> ratios, double null) {
  require_positive(ratios, "sign_test");
  const auto below = std::count_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio < null; });
  const auto above = std::count_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio > null; });
  const int count = static_cast<int>(ratios.size());
  const int against = count - static_cast<int>(std::max(below, above));
  return std::min(1.0, 2 * fair_coin_at_most(count, against));
}

double sign_test_above(std::span<const double> ratios, double null) {
  require_positive(ratios, "sign_test_above");
  const auto above = std::count_if(ratios.begin(), ratios.end(), [&](double ratio) { return ratio > null; });
  const int count = static_cast<int>(ratios.size());
  return fair_coin_at_most(count, count - static_cast<int>(above));
}

std::vector<double> holm(std::span<const double> p_values) {
  for (const double p : p_values)
    if (!(p >= 0 && p <= 1)) fail(ATTUNE_INVALID_ARGUMENT, "holm: a p-value is {}; it is in [0, 1]", p);
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto remaining = static_cast<double>(order.size() - i);
    largest = std::max(largest, std::min(1.0, remaining * p_values[order[i]]));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

TableRatio geometric_mean_ratio(const std::vector<std::vector<double>>& ratios, uint64_t seed, int resamples) {
  if (ratios.empty()) fail(ATTUNE_INVALID_ARGUMENT, "geometric_mean_ratio: no problems");
  for (const auto& row : ratios) {
    require_positive(row, "geometric_mean_ratio");
    if (row.size() != ratios.front().size())
      fail(ATTUNE_INVALID_ARGUMENT, "geometric_mean_ratio: problems have {} and {} rounds; all need the same number",
           ratios.front().size(), row.size());
  }
  std::vector<double> medians(ratios.size());
  for (size_t i = 0; i < ratios.size(); ++i) medians[i] = median(ratios[i]);
  TableRatio table;
  table.estimate = geometric_mean(medians);

  std::vector<double> drawn(ratios.front().size());
  const auto statistic = [&](std::span<const int> rounds) {
    for (size_t i = 0; i < ratios.size(); ++i) {
      for (size_t j = 0; j < rounds.size(); ++j) drawn[j] = ratios[i][rounds[j]];
      medians[i] = median(drawn);
    }
    return geometric_mean(medians);
  };
  table.interval = bootstrap(static_cast<int>(drawn.size()), statistic, seed, resamples);
  return table;
}

}  // namespace attune::lab::stats
