// Instructions of one warp on a GPU: matrix moves, mma.sync, exchanges within a quad, conversions, cp.async.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/convert.hpp"
#include "tests/ptx/divisor_cases.hpp"
#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

using device::test_warp::Operation;
using device::test_warp::place_of_row;
using Words = std::vector<uint32_t>;

class Warp : public PtxTest {
 protected:
  Words run(Operation operation, const Words& in, size_t out_words, size_t count = 0) {
    const Buffer<uint32_t> in_there(in), out(out_words, 0xee);
    launch(warp_unit(), {1, 1, 1},
           device::test_warp::Params{operation, static_cast<int32_t>(count), in_there.pointer(), out.pointer()});
    finish();
    return out.read();
  }
};

Words counting(size_t count) {
  Words words(count);
  std::iota(words.begin(), words.end(), 0x01020304u);
  return words;
}

uint32_t pair(uint32_t low, uint32_t high) { return low | high << 16; }

// Element (row, column) of one of four 8 x 8 matrices: a number of its own.
uint32_t element(int matrix, int row, int column) {
  return static_cast<uint32_t>(1000 + matrix * 64 + row * 8 + column);
}

// The matrices row by row, as in memory, and as a warp holds them: lane l has columns 2 (l % 4) and the next of row
// l / 4, or, transposed, those rows of column l / 4.
Words matrices_in_memory() {
  Words words;
  for (int matrix = 0; matrix < 4; ++matrix)
    for (int row = 0; row < 8; ++row)
      for (int column = 0; column < 8; column += 2)
        words.push_back(pair(element(matrix, row, column), element(matrix, row, column + 1)));
  return words;
}
Words matrices_in_registers(bool trans) {
  Words words;
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const int own = lane / 4, first = lane % 4 * 2;
      words.push_back(trans ? pair(element(matrix, first, own), element(matrix, first + 1, own))
                            : pair(element(matrix, own, first), element(matrix, own, first + 1)));
    }
  return words;
}
Words rows_in_place(const Words& rows) {
  Words words(rows.size());
  for (size_t i = 0; i < rows.size(); ++i)
    words[static_cast<size_t>(place_of_row(static_cast<int>(i / 4))) * 4 + i % 4] = rows[i];
  return words;
}

TEST_F(Warp, Ldmatrix) {
  EXPECT_EQ(run(Operation::ldmatrix, matrices_in_memory(), 128), matrices_in_registers(false));
  EXPECT_EQ(run(Operation::ldmatrix_trans, matrices_in_memory(), 128), matrices_in_registers(true));
}

TEST_F(Warp, Stmatrix) {
  const Words expected = rows_in_place(matrices_in_memory());
  EXPECT_EQ(run(Operation::stmatrix, matrices_in_registers(false), 128), expected);
  EXPECT_EQ(run(Operation::stmatrix_trans, matrices_in_registers(true), 128), expected);
}

TEST_F(Warp, MmaSync) {
  const auto a = [](int m, int k) { return (m * 7 + k * 3 + m * k % 5) % 16 - 8; };
  const auto b = [](int k, int n) { return (k * 5 + n * 11 + k * n % 7) % 16 - 7; };
  const auto c = [](int m, int n) { return m * 8 + n; };
  for (const bool bf16 : {false, true}) {
    const auto bits = [&](int value) {
      const auto x = static_cast<float>(value);
      return uint32_t{bf16 ? float_to_bf16(x) : float_to_f16(x)};
    };
    Words in;
    for (int m = 0; m < 16; ++m)
      for (int k = 0; k < 16; k += 2) in.push_back(pair(bits(a(m, k)), bits(a(m, k + 1))));
    for (int n = 0; n < 8; ++n)
      for (int k = 0; k < 16; k += 2) in.push_back(pair(bits(b(k, n)), bits(b(k + 1, n))));
    Words expected;
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 8; ++n) {
        in.push_back(std::bit_cast<uint32_t>(static_cast<float>(c(m, n))));
        int sum = c(m, n);
        for (int k = 0; k < 16; ++k) sum += a(m, k) * b(k, n);
        expected.push_back(std::bit_cast<uint32_t>(static_cast<float>(sum)));
      }
    EXPECT_EQ(difference(run(bf16 ? Operation::mma_bf16 : Operation::mma_f16, in, 128), expected), "") << bf16;
  }
}

TEST_F(Warp, QuadTranspose) {
  const Words in = counting(128), out = run(Operation::quad_transpose, in, 128);
  for (size_t lane = 0; lane < 32; ++lane)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(out[lane * 4 + i], in[(lane / 4 * 4 + i) * 4 + lane % 4]) << "lane " << lane << " part " << i;
}

TEST_F(Warp, QuadReductions) {
  std::vector<float> values(32);
  for (size_t i = 0; i < 32; ++i) values[i] = static_cast<float>((i * 29 + 3) % 64) - 40;
  values[9] = -std::numeric_limits<float>::infinity();
  Words in;
  for (const float value : values) in.push_back(std::bit_cast<uint32_t>(value));
  const Words out = run(Operation::quad_reduce, in, 64);
  for (size_t lane = 0; lane < 32; ++lane) {
    const float* quad = &values[lane / 4 * 4];
    EXPECT_EQ(std::bit_cast<float>(out[lane]), *std::max_element(quad, quad + 4)) << lane;
    EXPECT_EQ(std::bit_cast<float>(out[32 + lane]), quad[0] + quad[1] + quad[2] + quad[3]) << lane;
  }
}

TEST_F(Warp, SixteenBitsBecomeFloats) {
  Words in(1 << 16);
  std::iota(in.begin(), in.end(), 0u);
  const Words out = run(Operation::to_float, in, 2 * in.size(), in.size());
  for (uint32_t bits = 0; bits < in.size(); ++bits) {
    const float expected[] = {f16_to_float(static_cast<uint16_t>(bits)), bf16_to_float(static_cast<uint16_t>(bits))};
    for (size_t i = 0; i < 2; ++i) {
      const auto value = std::bit_cast<float>(out[2 * bits + i]);
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(value)) << bits;
      else
        EXPECT_EQ(out[2 * bits + i], std::bit_cast<uint32_t>(expected[i])) << bits;
    }
  }
}

// In whichever order the lanes add: what one found is the sum of those before it.
TEST_F(Warp, SharedAdditionsAreAtomic) {
  Words in(32);
  std::iota(in.begin(), in.end(), 1u);
  const Words out = run(Operation::shared_add, in, 66);
  for (size_t width = 0; width < 2; ++width) {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    for (size_t lane = 0; lane < 32; ++lane) found.emplace_back(out[32 * width + lane], in[lane]);
    std::ranges::sort(found);
    uint32_t sum = 0;
    for (const auto& [before, added] : found) {
      EXPECT_EQ(before, sum);
      sum += added;
    }
    EXPECT_EQ(out[64 + width], sum);
  }
}

TEST_F(Warp, PackRoundsToNearestEven) {
  // Ties of both formats, the last finite numbers and the first that are none, subnormals, zeros, infinities.
  std::vector<float> values = {1.f,
                               1.0009765625f,
                               1.00048828125f,
                               1.00146484375f,
                               1.00390625f,
                               1.01171875f,
                               65504.f,
                               65519.f,
                               65520.f,
                               65536.f,
                               3.3895e38f,
                               3.3961e38f,
                               6.1e-5f,
                               5.96e-8f,
                               2.98e-8f,
                               2.99e-8f,
                               1e-40f,
                               0.f,
                               -0.f,
                               -1.00048828125f,
                               -65520.f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 200; ++i) values.push_back(static_cast<float>(std::sin(i * 1.7) * std::exp2(i % 40 - 25)));
  Words in;
  for (size_t i = 0; i < values.size(); ++i) {
    in.push_back(std::bit_cast<uint32_t>(values[i]));
    in.push_back(std::bit_cast<uint32_t>(values[(i + 1) % values.size()]));
  }
  const Words out = run(Operation::pack, in, in.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float low = values[i], high = values[(i + 1) % values.size()];
    EXPECT_EQ(out[2 * i], pair(float_to_f16(low), float_to_f16(high))) << low << " " << high;
    EXPECT_EQ(out[2 * i + 1], pair(float_to_bf16(low), float_to_bf16(high))) << low << " " << high;
  }
}

// In pairs: 2^x of the first; log2 and 1 / y of the second.
struct Approximated {
  float exp2, log2, reciprocal;
};

class Approximations : public Warp {
 protected:
  std::vector<Approximated> run(const std::vector<std::pair<float, float>>& arguments) {
    Words in;
    for (const auto& [x, y] : arguments) {
      in.push_back(std::bit_cast<uint32_t>(x));
      in.push_back(std::bit_cast<uint32_t>(y));
    }
    const Words out = Warp::run(Operation::approximations, in, 3 * arguments.size(), arguments.size());
    std::vector<Approximated> results;
    for (size_t i = 0; i < out.size(); i += 3)
      results.push_back(
          {std::bit_cast<float>(out[i]), std::bit_cast<float>(out[i + 1]), std::bit_cast<float>(out[i + 2])});
    return results;
  }
};

TEST_F(Approximations, AreNearlyExact) {
  std::vector<std::pair<float, float>> arguments;
  for (int i = 0; i < 2000; ++i) {
    const float step = static_cast<float>(i) * 0.0613f;
    arguments.emplace_back(1.5f - step, std::exp2(step - 60.1f));
  }
  const std::vector<Approximated> results = run(arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const double x = arguments[i].first, y = arguments[i].second;
    EXPECT_NEAR(results[i].exp2 / std::exp2(x), 1, 0x1p-21) << x;
    EXPECT_NEAR(results[i].log2, std::log2(y), 0x1p-21 * std::max(1.0, std::abs(std::log2(y)))) << y;
    EXPECT_NEAR(results[i].reciprocal * y, 1, 0x1p-22) << y;
  }
}

// What the softmax leans on.
TEST_F(Approximations, AreExactAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Approximated> results = run({{-infinity, 0.f}, {0.f, 1.f}, {-200.f, infinity}});
  EXPECT_EQ(results[0].exp2, 0.f);
  EXPECT_EQ(results[0].log2, -infinity);
  EXPECT_EQ(results[0].reciprocal, infinity);
  EXPECT_EQ(results[1].exp2, 1.f);
  EXPECT_EQ(results[1].log2, 0.f);
  EXPECT_EQ(results[1].reciprocal, 1.f);
  EXPECT_EQ(results[2].exp2, 0.f);
  EXPECT_EQ(results[2].reciprocal, 0.f);
}

TEST_F(Warp, ElectTakesOneLane) {
  const Words out = run(Operation::elect, {0}, 32);
  EXPECT_EQ(std::accumulate(out.begin(), out.end(), 0u), 1u) << testing::PrintToString(out);
}

TEST_F(Warp, DivideIsExact) {
  Words in, expected;
  for (const int value : device::test_divisors()) {
    const device::Divisor divisor = device::divisor_of(static_cast<uint32_t>(value));
    for (const int n : device::edge_numerators(value)) {
      in.insert(in.end(), {static_cast<uint32_t>(n), divisor.value, divisor.multiplier, divisor.shift});
      expected.push_back(static_cast<uint32_t>(n / value));
    }
  }
  EXPECT_EQ(difference(run(Operation::divide, in, expected.size(), expected.size()), expected), "");
}

TEST_F(Warp, CpAsyncFillsWithZeros) {
  const Words in = counting(256);
  Words expected = in;
  for (size_t row = 0; row < 32; ++row)
    for (size_t byte = row % 17; byte < 16; ++byte) expected[row * 4 + byte / 4] &= ~(0xffu << (byte % 4 * 8));
  EXPECT_EQ(difference(run(Operation::cp_async, in, 256), expected), "");
}

TEST_F(Warp, CpAsyncArrivesOnABarrier) {
  const Words in = counting(128), out = run(Operation::cp_async_barrier, in, 128);
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], in[(i + 4) % 128]) << i;
}

}  // namespace
}  // namespace attune::ptx
