// Stands in for the instructions of kernels/common/wgmma.cuh; layouts and descriptors are the original's.
#pragma once

#undef __CUDACC_RTC__
#include "../../../../../kernels/common/wgmma.cuh"
#define __CUDACC_RTC__

#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

inline void wgmma_fence() { emulator::product_fence(); }
inline void wgmma_commit() { emulator::commit_products(); }
template <int pending>
void wgmma_wait() {
  emulator::wait_for_products(pending);
}
template <int count>
void pin(float (&)[count]) {}

template <int n>
struct Wgmma {
  static_assert(n % 8 == 0 && n >= 8 && n <= 256);
  template <Dtype dtype, Major major, Major a_major = Major::k>
  static void ss(float (&d)[n / 2], uint64_t a, uint64_t b, int accumulate) {
    emulator::issue_product({n, dtype, a_major == Major::mn, major == Major::mn, false}, d, nullptr, a, b,
                            accumulate != 0);
  }
  template <Dtype dtype, Major major>
  static void rs(float (&d)[n / 2], const uint32_t (&a)[4], uint64_t b, int accumulate) {
    emulator::issue_product({n, dtype, false, major == Major::mn, true}, d, a, 0, b, accumulate != 0);
  }
};

}  // namespace attune::device
