// What the number formats say about rounding.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/convert.hpp"

namespace attune::lab {

// Digits of the significand, the hidden one included.
constexpr int significand_bits(Dtype dtype) { return dtype == Dtype::f16 ? 11 : dtype == Dtype::bf16 ? 8 : 24; }

// Exponent of the smallest normal number.
constexpr int smallest_exponent(Dtype dtype) { return dtype == Dtype::f16 ? -14 : -126; }

// Half the distance from 1 to the next number: the largest relative error of rounding.
inline double unit_roundoff(Dtype dtype) { return std::ldexp(1.0, -significand_bits(dtype)); }

// Distance between neighbours at |value|; below the normal numbers it stays the same.
inline double ulp_at(Dtype dtype, double value) {
  const double magnitude = std::abs(value);
  const int exponent =
      magnitude > 0 ? std::max(std::ilogb(magnitude), smallest_exponent(dtype)) : smallest_exponent(dtype);
  return std::ldexp(1.0, exponent - significand_bits(dtype) + 1);
}

inline double largest(Dtype dtype) {
  return dtype == Dtype::f16 ? 65504.0 : dtype == Dtype::bf16 ? 0x1.fep127 : 0x1.fffffep127;
}

// One rounding, to nearest even.
inline double round_to(Dtype dtype, double value) {
  if (!std::isfinite(value)) return value;
  const double ulp = ulp_at(dtype, value);
  const double rounded = std::nearbyint(value / ulp) * ulp;
  return std::abs(rounded) > largest(dtype) ? std::copysign(HUGE_VAL, value) : rounded;
}

inline float round_to(Dtype dtype, float value) {
  if (dtype == Dtype::f16) return f16_to_float(float_to_f16(value));
  if (dtype == Dtype::bf16) return bf16_to_float(float_to_bf16(value));
  return value;
}

}  // namespace attune::lab
