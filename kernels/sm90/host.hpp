// What the Hopper kernels share on the host: which problems they take, and tensors as the copy engine sees them.
#pragma once

#include <string>

#include "core/operands.hpp"
#include "gpu/device.hpp"
#include "gpu/tensor_map.hpp"
#include "kernels/sm90/parameters.cuh"

namespace attune::sm90 {

// Returns why no Hopper kernel accepts the problem, or "". Head dims are checked by each kernel.
std::string common_refusal(const Problem& problem, const gpu::DeviceProperties& device);

// Which keys the rows see. Its keys end with the last one that some row sees: under a top-left mask those past the last
// row are hidden from all, and leaving them out of the tensor maps keeps whatever lies there from being read.
device::Band<int32_t> band_of(const Problem& problem);
device::Mask mask_of(const Problem& problem);

// What a call's pointers become: tensor maps, and which of the other pointers count.
struct Maps {
  gpu::TensorMapSpec q, k, v;
  bool has_lse, has_sink;
};
// A box is `q_rows` or `kv_rows` rows of one head, in panels of 64 columns with the 128-byte swizzle.
Maps maps_of(const Problem& problem, int q_rows, int kv_rows);

// Everything but the pointers.
device::sm90::Call call_of(const Problem& problem);

void set_pointers(device::sm90::Call& call, const Maps& maps, const Operands& operands, const gpu::Driver& driver);

}  // namespace attune::sm90
