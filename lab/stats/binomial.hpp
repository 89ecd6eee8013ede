// The binomial distribution of a fair coin, exact in double for every count a run can have.
#pragma once

#include <cmath>

namespace attune::lab::stats {

// P(heads <= most) in `count` throws. Terms by logarithms: 2^-count underflows long before the sum does.
inline double fair_coin_at_most(int count, int most) {
  double sum = 0;
  for (int k = 0; k <= most && k <= count; ++k)
    sum += std::exp(std::lgamma(count + 1.0) - std::lgamma(k + 1.0) - std::lgamma(count - k + 1.0) -
                    count * std::log(2.0));
  return sum < 1 ? sum : 1;
}

}  // namespace attune::lab::stats
