// Random numbers that are the same on every machine: the standard fixes mt19937_64 but not its distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <utility>
#include <vector>

namespace attune::lab::stats {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t bits() { return engine_(); }

  // 0..count-1. The modulo bias is below 2^-50 for any count used here.
  uint64_t below(uint64_t count) { return engine_() % count; }

  // [0, 1)
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace attune::lab::stats
