// Stands in for kernels/common/cluster.cuh.
#pragma once

#include <cstring>

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

using emulator::cluster_rank, emulator::cluster_size, emulator::cluster_arrive, emulator::cluster_wait;

inline void cluster_arrive_relaxed() { cluster_arrive(); }
inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

inline uint32_t remote_address(const void* pointer, uint32_t cta) {
  return emulator::remote_address(shared_address(pointer), cta);
}

template <typename T>
void load_remote_bytes(T& value, uint32_t address) {
  std::memcpy(&value, emulator::shared_pointer(address, sizeof value), sizeof value);
}
template <typename T>
void store_remote_bytes(uint32_t address, const T& value) {
  std::memcpy(emulator::shared_pointer(address, sizeof value), &value, sizeof value);
  emulator::maybe_pause();
}

inline float load_remote(uint32_t address) {
  float x;
  load_remote_bytes(x, address);
  return x;
}
inline void load_remote_16_bytes(uint32_t (&x)[4], uint32_t address) { load_remote_bytes(x, address); }
inline void store_remote(uint32_t address, float x) { store_remote_bytes(address, x); }
inline void store_remote(uint32_t address, float x, float y) {
  const float pair[2] = {x, y};
  store_remote_bytes(address, pair);
}
inline void store_remote_16_bytes(uint32_t address, const uint32_t (&x)[4]) { store_remote_bytes(address, x); }
inline void store_remote_async(uint32_t address, float x, uint32_t barrier) {
  emulator::store_to_remote(address, &x, sizeof x, barrier);
}
inline void store_remote_async(uint32_t address, float x, float y, uint32_t barrier) {
  const float pair[2] = {x, y};
  emulator::store_to_remote(address, pair, sizeof pair, barrier);
}
inline void store_remote_async_16_bytes(uint32_t address, const uint32_t (&x)[4], uint32_t barrier) {
  emulator::store_to_remote(address, x, sizeof x, barrier);
}
inline void bulk_copy_remote(uint32_t address, const void* source, uint32_t bytes, uint32_t barrier) {
  emulator::copy_to_remote(address, source, bytes, barrier);
}

}  // namespace attune::device
