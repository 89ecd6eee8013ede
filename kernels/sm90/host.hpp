// What the Hopper kernels share on the host: which problems they take, and tensors as the copy engine sees them.
#pragma once

#include <string>

#include "core/operands.hpp"
#include "gpu/device.hpp"
#include "gpu/tensor_map.hpp"

namespace attune::sm90 {

// Returns why no Hopper kernel accepts the problem, or "". Head dims are checked by each kernel.
std::string common_refusal(const Problem& problem, const gpu::DeviceProperties& device);

// Keys that any row sees. Top-left, those past the last row are hidden from all: leaving them out of the tensor maps
// also keeps whatever lies there from being read.
int64_t keys_in_use(const Problem& problem);

// Row i sees keys 0 .. i + diagonal, if the problem is causal.
int64_t diagonal_of(const Problem& problem);

float scale_log2_of(const Problem& problem);

struct Maps {
  gpu::TensorMapSpec q, k, v;
};
// A box is `q_rows` or `kv_rows` rows of one head, in panels of 64 columns with the 128-byte swizzle.
Maps maps_of(const Problem& problem, int q_rows, int kv_rows);

// The fields that every Params has.
template <typename Params>
void set_constants(Params& params, const Problem& problem) {
  params.o_batch_stride = problem.o.batch;
  params.o_row_stride = problem.o.row;
  params.o_head_stride = problem.o.head;
  params.lse_batch_stride = problem.lse.batch;
  params.lse_row_stride = problem.lse.row;
  params.lse_head_stride = problem.lse.head;
  params.seq_q = static_cast<int32_t>(problem.seq_q);
  params.seq_k = static_cast<int32_t>(keys_in_use(problem));
  params.diagonal = static_cast<int32_t>(diagonal_of(problem));
  params.scale_log2 = scale_log2_of(problem);
}

template <typename Params>
void set_pointers(Params& params, const Maps& maps, const Operands& operands, const gpu::Driver& driver) {
  params.q = tensor_map(driver, maps.q, operands.in(Operand::q));
  params.k = tensor_map(driver, maps.k, operands.in(Operand::k));
  params.v = tensor_map(driver, maps.v, operands.in(Operand::v));
  params.o = operands.out(Operand::o);
  params.lse = operands.out<float>(Operand::lse);
}

}  // namespace attune::sm90
