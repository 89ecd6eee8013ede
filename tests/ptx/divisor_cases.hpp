// Divisors and numerators where a division by multiplication would go wrong first, for host and GPU.
#pragma once

#include <climits>
#include <vector>

namespace attune::device {

inline std::vector<int> test_divisors() {
  std::vector<int> values;
  for (int value = 1; value <= 5000; ++value) values.push_back(value);
  for (int shift = 13; shift <= 30; ++shift)
    for (const int near : {-1, 0, 1}) values.push_back((1 << shift) + near);
  for (const int value : {65521, 1000003, 1073741789, INT_MAX - 1, INT_MAX}) values.push_back(value);
  return values;
}

// Around small, middle and the largest multiples, and around powers of two.
inline std::vector<int> edge_numerators(int value) {
  std::vector<int> numerators;
  const auto add_around = [&](int64_t n) {
    for (const int near : {-1, 0, 1})
      if (n + near >= 0 && n + near <= INT_MAX) numerators.push_back(static_cast<int>(n + near));
  };
  const int largest = INT_MAX / value;
  for (const int64_t multiple : {0, 1, 2, 3, largest / 3, largest / 2, largest - 1, largest})
    add_around(multiple * value);
  for (const int shift : {15, 16, 24, 30, 31}) add_around(int64_t{1} << shift);
  return numerators;
}

}  // namespace attune::device
