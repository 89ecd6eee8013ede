// Atomic additions in shared memory.
#pragma once

#include "kernels/common/mbarrier.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

// Returns what was there.
ATTUNE_DEVICE int32_t shared_add(int32_t* address, int32_t value) {
  int32_t before;
  asm volatile("atom.shared::cta.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(shared_address(address)), "r"(value)
               : "memory");
  return before;
}

}  // namespace attune::device
#endif
