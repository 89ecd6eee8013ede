// Checks on a GPU: kernels run on copies of the host's tensors, and the truth comes from the reference kernel there,
// which affords every row.
#pragma once

#include <limits>
#include <memory>

#include "lab/check/executor.hpp"
#include "lab/check/reference.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

// The reference kernel affords every row of every problem; Ideal is made by the CPU, for a sample of large ones.
constexpr RowPolicy cuda_rows{
    .all_rows_flops = std::numeric_limits<double>::infinity(), .sampled_rows = 512, .all_ideal_flops = 0x1p31};

// Throw ATTUNE_NO_DEVICE where the device is absent.
// `config`: of the forced kernel's space(), "" for the kernel's own choice.
std::unique_ptr<Executor> make_cuda_executor(int device_index = 0, const std::string& config = "");
std::unique_ptr<ReferenceSource> make_cuda_reference(int device_index = 0);

}  // namespace attune::lab
