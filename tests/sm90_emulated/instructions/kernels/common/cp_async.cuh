// Stands in for kernels/common/cp_async.cuh.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

inline void cp_async_16(void* destination, const void* source, int bytes = 16) {
  emulator::copy_16_bytes(destination, source, bytes);
}
inline void cp_async_commit() { emulator::commit_copies(); }
template <int pending>
void cp_async_wait() {
  emulator::wait_for_copies(pending);
}
inline void cp_async_arrive(Mbarrier& barrier) { emulator::arrive_after_copies(&barrier.state); }

}  // namespace attune::device
