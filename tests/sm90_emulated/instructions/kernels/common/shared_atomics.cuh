// Stands in for kernels/common/shared_atomics.cuh. Fibres of a CTA run one at a time.
#pragma once

#include "kernels/common/mbarrier.cuh"

namespace attune::device {

inline int32_t shared_add(int32_t* address, int32_t value) {
  const int32_t before = *address;
  *address += value;
  return before;
}

}  // namespace attune::device
