#include "lab/stats/summary.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.hpp"

namespace attune::lab::stats {
namespace {

void require_numbers(std::span<const double> values, const char* what) {
  if (values.empty()) fail(ATTUNE_INVALID_ARGUMENT, "{} of no values", what);
  for (const double value : values)
    if (!std::isfinite(value)) fail(ATTUNE_INVALID_ARGUMENT, "{}: a value is {}; all must be finite", what, value);
}

}  // namespace

void require_positive(std::span<const double> values, const char* what) {
  require_numbers(values, what);
  for (const double value : values)
    if (value <= 0) fail(ATTUNE_INVALID_ARGUMENT, "{}: a value is {}; all must be above 0", what, value);
}

double median(std::span<const double> values) {
  require_numbers(values, "median");
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2 == 1) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

double relative_std(std::span<const double> values) {
  require_positive(values, "relative_std");
  if (values.size() == 1) return 0;
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (count - 1)) / mean;
}

double geometric_mean(std::span<const double> values) {
  require_positive(values, "geometric_mean");
  double logs = 0;
  for (const double value : values) logs += std::log(value);
  return std::exp(logs / static_cast<double>(values.size()));
}

}  // namespace attune::lab::stats
