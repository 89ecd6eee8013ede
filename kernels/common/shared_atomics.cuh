// Atomic additions in shared memory. Each returns what was there.
#pragma once

#include "kernels/common/mbarrier.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

ATTUNE_DEVICE int32_t shared_add(int32_t* address, int32_t value) {
  int32_t before;
  asm volatile("atom.shared::cta.add.s32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(shared_address(address)), "r"(value)
               : "memory");
  return before;
}

ATTUNE_DEVICE uint64_t shared_add(uint64_t* address, uint64_t value) {
  uint64_t before;
  asm volatile("atom.shared::cta.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "r"(shared_address(address)), "l"(value)
               : "memory");
  return before;
}

}  // namespace attune::device
#endif
