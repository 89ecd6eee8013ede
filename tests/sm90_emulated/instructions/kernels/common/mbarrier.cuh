// Stands in for kernels/common/mbarrier.cuh.
#pragma once

#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

using emulator::shared_address, emulator::elect_one;

struct Mbarrier {
  uint64_t state;

  void init(uint32_t arrivals) { emulator::mbarrier_init(&state, arrivals); }
  void arrive() { emulator::mbarrier_arrive(&state); }
  void arrive_expect(uint32_t bytes) {
    emulator::mbarrier_expect(&state, bytes);
    emulator::mbarrier_arrive(&state);
  }
  void arrive_remote(uint32_t cta) {
    const uint32_t address = emulator::remote_address(shared_address(&state), cta);
    emulator::mbarrier_arrive(static_cast<uint64_t*>(emulator::shared_pointer(address, sizeof state)));
  }
  bool test(uint32_t parity) const { return emulator::mbarrier_test(&state, parity); }
  bool try_wait(uint32_t parity) const { return emulator::mbarrier_try_wait(&state, parity); }
  bool try_wait_cluster(uint32_t parity) const { return emulator::mbarrier_try_wait(&state, parity); }
  void wait(uint32_t parity, const char* name) const { emulator::mbarrier_wait(&state, parity, name); }
  void wait_cluster(uint32_t parity, const char* name) const { emulator::mbarrier_wait(&state, parity, name); }
};

// As in the original.
template <int slots>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;

  ATTUNE_DEVICE void advance() {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

inline void fence_mbarrier_init() {}
inline void fence_async_shared() {}

}  // namespace attune::device
