// A kernel file compiled for one architecture, and what that says before anything runs: registers, spills, shared
// memory, occupancy. Needs NVRTC, and no GPU.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "jit/compile.hpp"
#include "jit/cubin.hpp"
#include "lab/try/kernel_file.hpp"

namespace attune::lab {

struct KernelBuild {
  jit::Compiled compiled;
  jit::CubinInfo info;
};

// The folders with CUDA's own headers (cuda_fp16.h, mma.h): of the toolkits and of the wheels that this machine has.
std::vector<std::string> cuda_header_folders();

// Throws ATTUNE_COMPILE_ERROR with the compiler's words, whose line numbers are those of the file, and
// ATTUNE_INVALID_ARGUMENT where the file's comment contradicts what was compiled.
KernelBuild build_kernel(const KernelFile& file, const Problem& problem, const std::string& arch,
                         const jit::Compiler& compiler);

struct KernelResources {
  std::string arch;
  int registers = 0, spill_store_bytes = 0, spill_load_bytes = 0, stack_bytes = 0;
  int static_shared_bytes = 0, dynamic_shared_bytes = 0, threads = 0;
  int blocks_per_sm = 0;  // 0: it cannot be launched there
  double occupancy = 0;   // of the warps that a multiprocessor holds
  std::string complaint;  // why it cannot be launched, or what costs most, or ""
};
KernelResources resources_of(const KernelBuild& build, const KernelLaunch& launch, const gpu::DeviceProperties& device);

}  // namespace attune::lab
