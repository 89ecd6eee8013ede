// Division by a number that the host knows, as a multiplication.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

struct Divisor {
  uint32_t value, multiplier, shift;
};

// n / value for 0 <= n < 2^31: multiplier = ceil(2^(31 + shift) / value) with 2^shift >= value, so the error stays
// below 1 / value.
ATTUNE_SHARED_CODE Divisor divisor_of(uint32_t value) {
  uint32_t shift = 0;
  while ((uint64_t{1} << shift) < value) ++shift;
  return {value, static_cast<uint32_t>(((uint64_t{1} << (31 + shift)) + value - 1) / value), shift};
}

#ifdef __CUDACC_RTC__
ATTUNE_DEVICE int divide(int n, const Divisor& d) {
  return static_cast<int>(__umulhi(2u * static_cast<uint32_t>(n), d.multiplier) >> d.shift);
}
#else
constexpr int divide(int n, const Divisor& d) {
  return static_cast<int>((2 * static_cast<uint64_t>(n) * d.multiplier) >> 32 >> d.shift);
}
#endif

}  // namespace attune::device
