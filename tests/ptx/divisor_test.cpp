// Division by multiplication is exact for every numerator below 2^31; here at the numerators where it could fail.
#include "kernels/common/divisor.cuh"

#include <gtest/gtest.h>

#include "tests/ptx/divisor_cases.hpp"

namespace attune::device {
namespace {

static_assert(divide(2147483647, divisor_of(1)) == 2147483647);
static_assert(divide(2147483647, divisor_of(2147483647)) == 1);
static_assert(divide(2147483646, divisor_of(2147483647)) == 0);
static_assert(divide(100, divisor_of(7)) == 14);

TEST(Divisor, IsExactAtTheEdges) {
  for (const int value : test_divisors()) {
    const Divisor divisor = divisor_of(static_cast<uint32_t>(value));
    EXPECT_EQ(divisor.value, static_cast<uint32_t>(value));
    for (const int n : edge_numerators(value)) ASSERT_EQ(divide(n, divisor), n / value) << n << " / " << value;
  }
}

}  // namespace
}  // namespace attune::device
