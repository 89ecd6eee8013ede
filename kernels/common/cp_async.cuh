// cp.async: copies of 16 bytes from global to shared memory that pass no register, issued by ordinary threads. For GPUs
// without the copy engine, and for rows that no tensor map describes.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

// Both addresses are multiples of 16, even if nothing is read. Of the 16 bytes written, those from `bytes` on are zero.
ATTUNE_DEVICE void cp_async_16(void* destination, const void* source, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(destination)), "l"(source),
               "r"(bytes)
               : "memory");
}

ATTUNE_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most `pending` groups of this thread are unfinished. Others see the data after a barrier.
template <int pending>
ATTUNE_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Arrives, as one of the counted arrivals, when this thread's copies up to here are done.
ATTUNE_DEVICE void cp_async_arrive(Mbarrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

}  // namespace attune::device
#endif
