// Stands in for kernels/common/tma.cuh.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

enum class Evict : uint64_t {
  normal = 0x1000000000000000ull,
  first = 0x12F0000000000000ull,
  last = 0x14F0000000000000ull,
};

inline void tma_prefetch_map(const TensorMap& map) { emulator::check_map(map); }
inline void tma_prefetch_5d(const TensorMap& map, int, int, int, int, int) { emulator::check_map(map); }
inline void tma_load_5d(void* destination, const TensorMap& map, Mbarrier& full, int c0, int c1, int c2, int c3, int c4,
                        Evict) {
  emulator::load_box(destination, map, &full.state, 0, {c0, c1, c2, c3, c4});
}
inline void tma_load_5d_multicast(void* destination, const TensorMap& map, Mbarrier& full, uint16_t cta_mask, int c0,
                                  int c1, int c2, int c3, int c4, Evict) {
  emulator::load_box(destination, map, &full.state, cta_mask, {c0, c1, c2, c3, c4});
}
inline void tma_store_5d(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  emulator::store_box(map, source, {c0, c1, c2, c3, c4}, emulator::Transfer::copy);
}
inline void tma_reduce_add_5d(const TensorMap& map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  emulator::store_box(map, source, {c0, c1, c2, c3, c4}, emulator::Transfer::add_floats);
}

inline void bulk_load(void* destination, const void* source, uint32_t bytes, Mbarrier& full) {
  emulator::load_bytes(destination, source, bytes, &full.state);
}
inline void bulk_store(void* destination, const void* source, uint32_t bytes) {
  emulator::store_bytes(destination, source, bytes, emulator::Transfer::copy);
}
inline void bulk_reduce_add(float* destination, const float* source, uint32_t bytes) {
  emulator::store_bytes(destination, source, bytes, emulator::Transfer::add_floats);
}

inline void tma_store_commit() { emulator::commit_stores(); }
template <int pending>
void tma_store_wait_read() {
  emulator::wait_for_stores(pending, true);
}
template <int pending>
void tma_store_wait() {
  emulator::wait_for_stores(pending, false);
}

}  // namespace attune::device
