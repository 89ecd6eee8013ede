// Stands in for kernels/common/convert.cuh.
#pragma once

#include "core/convert.hpp"
#include "kernels/common/types.cuh"

namespace attune::device {

template <Dtype dtype>
float to_float(uint16_t bits) {
  return dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

}  // namespace attune::device
