// bar.sync and bar.arrive: hardware barriers 0..15 of a CTA. 0 is __syncthreads. `threads` counts both sides, and every
// caller of one barrier gives the same number. Hardware has no polling form of the wait, so there is no bounded one: a
// missed turn shows as an endless wait of others on an Mbarrier.
#pragma once

#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

ATTUNE_DEVICE void barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
ATTUNE_DEVICE void barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace attune::device
#endif
