// A tensor over scores as a kernel is told of it.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device::sm90 {

// A bias or a boolean mask, with strides of 0 where it is broadcast.
struct ScoreTensor {
  const void* data;  // null: none
  int64_t batch_stride, head_stride, row_stride, key_stride;
  bool in_pairs;  // two neighbouring keys lie side by side, at a multiple of both, whatever the row
};

}  // namespace attune::device::sm90
