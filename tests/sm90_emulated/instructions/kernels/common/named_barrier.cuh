// Stands in for kernels/common/named_barrier.cuh.
#pragma once

#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

inline void barrier_sync(uint32_t id, uint32_t threads) { emulator::named_barrier(id, threads, true); }
inline void barrier_arrive(uint32_t id, uint32_t threads) { emulator::named_barrier(id, threads, false); }

}  // namespace attune::device
