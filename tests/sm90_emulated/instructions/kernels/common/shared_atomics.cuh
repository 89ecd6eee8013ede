// Stands in for kernels/common/shared_atomics.cuh. Fibres of a CTA run one at a time.
#pragma once

#include "kernels/common/mbarrier.cuh"

namespace attune::device {

template <typename T>
T shared_add(T* address, T value) {
  const T before = *address;
  *address += value;
  return before;
}

}  // namespace attune::device
