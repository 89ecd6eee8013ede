// Plain summaries of a list of numbers. Every function here is pure; NaN and empty input are refused.
#pragma once

#include <span>

namespace attune::lab::stats {

// The middle value, or the mean of the two middle ones.
double median(std::span<const double> values);

// Standard deviation (n - 1) over the mean; 0 for a single value. Values must be positive.
double relative_std(std::span<const double> values);

// exp of the mean logarithm. Values must be positive.
double geometric_mean(std::span<const double> values);

// Refuses an empty list and any value that is not finite and above 0; `what` begins the error.
void require_positive(std::span<const double> values, const char* what);

// Above this a set of samples is shown as noisy. A label, never a reason to drop samples.
constexpr double noisy_relative_std = 0.02;

}  // namespace attune::lab::stats
