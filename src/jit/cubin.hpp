// Reads a cubin (an ELF file) without any of NVIDIA's tools: the figures a ceiling or a launch depends on, and a hash
// of the code itself. Every offset is checked, so that damaged bytes give an error and nothing worse.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attune::jit {

// More is taken from no file: a kernel of ours has a few hundred kilobytes at most.
inline constexpr size_t largest_cubin_bytes = size_t{64} << 20;

struct CubinInfo {
  std::string kernel;            // the one entry function
  int arch = 0;                  // 90 for sm_90 and sm_90a
  int registers = 0;             // per thread, at entry
  int stack_bytes = 0;           // local memory per thread
  int params_bytes = 0;          // of the one parameter that kernels of this library have
  std::vector<int> param_sizes;  // in bytes, of each parameter in its order
  int static_smem_bytes = 0;
  int code_bytes = 0;
  int max_threads = 0;           // of the launch bounds; 0: not given
  std::string compiler_version;  // "13.0.88"; "" if the file does not say
  std::string code_hash;         // 32 hex digits over instructions, constants and registers: what the card executes
};

// Throws ATTUNE_COMPILE_ERROR if the bytes are no cubin with exactly one kernel.
CubinInfo read_cubin(std::string_view bytes);

}  // namespace attune::jit
