// Thread-block clusters: their barrier, and the shared memory of the other CTAs (DSMEM).
//
// The barrier's wait has no polling form in hardware, so no bounded one here: where a hang must name itself, let CTAs
// meet on an Mbarrier (arrive_remote, wait_cluster). A CTA must not exit while another may still touch its shared
// memory: close with a cluster barrier.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

ATTUNE_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

ATTUNE_DEVICE uint32_t cluster_size() {
  uint32_t size;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// All threads of all CTAs arrive, whole warps at a time, and each waits before it arrives again.
ATTUNE_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// Orders no memory: for a barrier that only says "I am done reading".
ATTUNE_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
ATTUNE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

ATTUNE_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// The address of the same place in another CTA, for the functions below.
ATTUNE_DEVICE uint32_t remote_address(const void* pointer, uint32_t cta) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(cta));
  return address;
}

ATTUNE_DEVICE float load_remote(uint32_t address) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

ATTUNE_DEVICE void load_remote_16_bytes(uint32_t (&x)[4], uint32_t address) {
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(address)
               : "memory");
}

ATTUNE_DEVICE void store_remote(uint32_t address, float x) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

ATTUNE_DEVICE void store_remote(uint32_t address, float x, float y) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

ATTUNE_DEVICE void store_remote_16_bytes(uint32_t address, const uint32_t (&x)[4]) {
  asm volatile("st.shared::cluster.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]),
               "r"(x[3])
               : "memory");
}

// st.async: the bytes are credited to `barrier`, the address of an Mbarrier of the same CTA as `address`, which has
// announced them by arrive_expect.
ATTUNE_DEVICE void store_remote_async(uint32_t address, float x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address), "f"(x),
               "r"(barrier)
               : "memory");
}

ATTUNE_DEVICE void store_remote_async(uint32_t address, float x, float y, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
               "f"(x), "f"(y), "r"(barrier)
               : "memory");
}

ATTUNE_DEVICE void store_remote_async_16_bytes(uint32_t address, const uint32_t (&x)[4], uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(barrier)
      : "memory");
}

// A block of own shared memory to another CTA by the copy engine; multiples of 16 bytes. Credited as above. Ordinary
// writes to the source need fence_async_shared first.
ATTUNE_DEVICE void bulk_copy_remote(uint32_t address, const void* source, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(address),
      "r"(shared_address(source)), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace attune::device
#endif
