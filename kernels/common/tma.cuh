// The copy engine: tiles between global and shared memory through tensor maps, and plain blocks of bytes.
//
// Coordinates are given innermost first. Rows outside the tensor read as zero and are not written; the bytes that a
// load delivers to its barrier are those of the whole box all the same.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

// What the L2 should do with the line afterwards: the encoded policies of createpolicy with fraction 1.
enum class Evict : uint64_t {
  normal = 0x1000000000000000ull,
  first = 0x12F0000000000000ull,
  last = 0x14F0000000000000ull,
};

ATTUNE_DEVICE void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

ATTUNE_DEVICE void tma_load_5d(void* destination, const TensorMap& map, Mbarrier& full, int c0, int c1, int c2, int c3,
                               int c4, Evict evict) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(static_cast<uint64_t>(evict))
      : "memory");
}

// The box into the L2 alone: a later load of it is answered from there.
ATTUNE_DEVICE void tma_prefetch_5d(const TensorMap& map, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global.tile [%0, {%1, %2, %3, %4, %5}];" ::"l"(&map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// The same box into every CTA of `cta_mask`, at the same place; each CTA's own barrier at that place is credited.
ATTUNE_DEVICE void tma_load_5d_multicast(void* destination, const TensorMap& map, Mbarrier& full, uint16_t cta_mask,
                                         int c0, int c1, int c2, int c3, int c4, Evict evict) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %9, %8;" ::"r"(shared_address(destination)),
      "l"(&map), "r"(shared_address(&full)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
      "l"(static_cast<uint64_t>(evict)), "h"(cta_mask)
      : "memory");
}

// A box that is stored may end outside the tensor but not begin before it: on the H200 a negative coordinate, which a
// load takes, is an illegal instruction here.
ATTUNE_DEVICE void tma_store_5d(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

// Adds the float32 box to what is there. In which order boxes are added is not defined.
ATTUNE_DEVICE void tma_reduce_add_5d(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
          &map),
      "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// Blocks of bytes: addresses and size are multiples of 16.
ATTUNE_DEVICE void bulk_load(void* destination, const void* source, uint32_t bytes, Mbarrier& full) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(destination)),
               "l"(source), "r"(bytes), "r"(shared_address(&full))
               : "memory");
}
ATTUNE_DEVICE void bulk_store(void* destination, const void* source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
}
ATTUNE_DEVICE void bulk_reduce_add(float* destination, const float* source, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
               "r"(shared_address(source)), "r"(bytes)
               : "memory");
}

// Closes a group of stores and additions of this thread.
ATTUNE_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most `pending` groups still read their shared memory.
template <int pending>
ATTUNE_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Until at most `pending` groups are not yet visible in global memory.
template <int pending>
ATTUNE_DEVICE void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace attune::device
#endif
