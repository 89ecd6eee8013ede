// The host's side of call.cuh: from a problem and its pointers to the struct that plain kernels take.
#pragma once

#include "core/operands.hpp"
#include "jit/unit.hpp"
#include "kernels/any/call.cuh"

namespace attune::any {

// Everything but the pointers.
device::any::Call call_of(const Problem& problem);

// The pointers of the features that are on.
void set_pointers(device::any::Call& call, const Operands& operands);

device::Dtype device_dtype(Dtype dtype);

// The head dim that plain kernels are compiled for, for q and k as for v: the next of 64, 128, 192, 256, 512. Few, so
// that all of them fit into the pack.
int compiled_dim(const Problem& problem);

// The grid of a kernel that walks over `blocks` with a stride of the grid.
jit::Dim3 grid_for(int64_t blocks);

}  // namespace attune::any
