// What the kernels for dense problems share on the host: which problems they take, what each launch is told of one, and
// tensors as the copy engine sees them.
#pragma once

#include <string>

#include "core/operands.hpp"
#include "gpu/device.hpp"
#include "gpu/tensor_map.hpp"
#include "kernels/attention/dense_keys.cuh"
#include "kernels/attention/key_range.cuh"
#include "kernels/sm90/epilogue.cuh"

namespace attune::sm90 {

// Returns why no Hopper kernel accepts the problem, or "". Head dims are checked by each kernel.
std::string common_refusal(const Problem& problem, const gpu::DeviceProperties& device);

device::Band<int64_t> band_of(const Problem& problem);

// Keys that some row sees. Top-left, those past the last row are hidden from all: leaving them out of the tensor maps
// also keeps whatever lies there from being read.
int64_t keys_in_use(const Problem& problem);

device::sm90::DenseOutputs outputs_of(const Problem& problem);  // without pointers
device::DenseKeys keys_of(const Problem& problem);
float scale_log2_of(const Problem& problem);

struct Maps {
  gpu::TensorMapSpec q, k, v;
};
// A box is `q_rows` or `kv_rows` rows of one head, in panels of 64 columns with the 128-byte swizzle.
Maps maps_of(const Problem& problem, int q_rows, int kv_rows);

template <typename Params>
void set_pointers(Params& params, const Maps& maps, const Operands& operands, const gpu::Driver& driver) {
  params.q = tensor_map(driver, maps.q, operands.in(Operand::q));
  params.k = tensor_map(driver, maps.k, operands.in(Operand::k));
  params.v = tensor_map(driver, maps.v, operands.in(Operand::v));
  params.out.o = operands.out(Operand::o);
  params.out.lse = operands.out<float>(Operand::lse);
}

}  // namespace attune::sm90
