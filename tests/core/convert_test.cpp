// Conversions against the compiler's own 16-bit type, exhaustively, and against the definition of rounding.
#include "core/convert.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace attune {
namespace {

__extension__ typedef _Float16 CompilerHalf;

CompilerHalf half_of(uint16_t bits) {
  CompilerHalf half;
  std::memcpy(&half, &bits, 2);
  return half;
}

uint16_t bits_of(CompilerHalf half) {
  uint16_t bits = 0;
  std::memcpy(&bits, &half, 2);
  return bits;
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

bool is_nan_f16(uint16_t bits) { return (bits & 0x7fffu) > 0x7c00u; }

TEST(Convert, EveryHalfBecomesTheFloatTheCompilerSays) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    ASSERT_TRUE(same(f16_to_float(half), static_cast<float>(half_of(half)))) << std::hex << bits;
  }
}

TEST(Convert, EveryHalfAndBf16SurvivesTheWayThroughFloat) {
  for (uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto value = static_cast<uint16_t>(bits);
    if (is_nan_f16(value)) {
      ASSERT_TRUE(is_nan_f16(float_to_f16(f16_to_float(value)))) << std::hex << bits;
    } else {
      ASSERT_EQ(float_to_f16(f16_to_float(value)), value) << std::hex << bits;
    }
    if (std::isnan(bf16_to_float(value))) {
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(bf16_to_float(value))))) << std::hex << bits;
    } else {
      ASSERT_EQ(float_to_bf16(bf16_to_float(value)), value) << std::hex << bits;
    }
  }
}

// Around every boundary between two halves, and on a stride through all floats that shares no factor with 2^32.
TEST(Convert, FloatToHalfRoundsAsTheCompilerDoes) {
  const auto check = [](uint32_t bits) {
    const float value = std::bit_cast<float>(bits);
    const uint16_t ours = float_to_f16(value), theirs = bits_of(static_cast<CompilerHalf>(value));
    if (std::isnan(value)) return is_nan_f16(ours);
    return ours == theirs;
  };
  for (uint32_t half = 0; half < 0x7c00u; ++half)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto low = std::bit_cast<uint32_t>(f16_to_float(static_cast<uint16_t>(half)));
      const auto high = std::bit_cast<uint32_t>(f16_to_float(static_cast<uint16_t>(half + 1)));
      const uint32_t middle = half + 1 == 0x7c00u ? 0x477ff000u : low + (high - low) / 2;
      for (uint32_t near = middle - 2; near <= middle + 2; ++near) ASSERT_TRUE(check(near | sign)) << std::hex << near;
    }
  uint32_t bits = 0;
  do {
    ASSERT_TRUE(check(bits)) << std::hex << bits;
    bits += 997;
  } while (bits >= 997);
}

// bf16 is the upper half of a float: the nearest one by distance, ties to the even one.
TEST(Convert, FloatToBf16RoundsToNearestEven) {
  uint32_t bits = 0;
  do {
    const float value = std::bit_cast<float>(bits);
    const uint16_t rounded = float_to_bf16(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(bf16_to_float(rounded))) << std::hex << bits;
    } else if (std::isfinite(value)) {
      const auto down = static_cast<uint16_t>(bits >> 16), up = static_cast<uint16_t>(down + 1);
      // Beyond the largest bf16 the next step counts as 2^128, as IEEE 754 has it.
      const double below = bf16_to_float(down);
      const double above = std::isinf(bf16_to_float(up)) ? std::copysign(0x1p128, value) : bf16_to_float(up);
      const double to_below = std::abs(value - below), to_above = std::abs(above - value);
      const bool take_above = to_above < to_below || (to_above == to_below && (up & 1u) == 0);
      ASSERT_EQ(rounded, take_above ? up : down) << std::hex << bits;
    } else {
      ASSERT_EQ(bf16_to_float(rounded), value);
    }
    bits += 997;
  } while (bits >= 997);
}

TEST(Convert, ElementsOfEveryDtype) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    alignas(4) unsigned char memory[3 * 4] = {};
    store_element(memory, dtype, 1, -1.5f);
    EXPECT_EQ(load_element(memory, dtype, 0), 0.0f);
    EXPECT_EQ(load_element(memory, dtype, 1), -1.5f);
    EXPECT_EQ(load_element(memory, dtype, 2), 0.0f);
  }
}

}  // namespace
}  // namespace attune
