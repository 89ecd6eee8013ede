#include "lab/try/kernel_build.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "core/error.hpp"
#include "jit/nvrtc.hpp"
#include "jit/paths.hpp"

namespace attune::lab {
namespace {

namespace fs = std::filesystem;

constexpr int warp_threads = 32;

std::string element_of(Dtype dtype) {
  if (dtype == Dtype::f32) return "float";
  return dtype == Dtype::f16 ? "__half" : "__nv_bfloat16";
}

std::vector<std::string> options_for(const KernelFile& file, const Problem& problem) {
  std::vector<std::string> options;
  for (const std::string& folder : cuda_header_folders()) options.push_back("--include-path=" + folder);
  if (const std::string own = fs::path(file.path).parent_path().string(); !own.empty())
    options.push_back("--include-path=" + own);
  options.push_back("--define-macro=ELEMENT=" + element_of(problem.dtype));
  options.emplace_back("--define-macro=INFINITY=__int_as_float(0x7f800000)");  // math.h is no header of CUDA
  const Variables variables = variables_of(problem);
  for (const auto& [name, expression] : file.defines)
    options.push_back(fmt::format("--define-macro={}={}", name, evaluate(expression, variables)));
  return options;
}

// The name as a C++ compiler writes it: _Z9attentionPKf of attention(const float*).
bool is_entry(const std::string& symbol, const std::string& entry) {
  return symbol == entry || symbol.starts_with(fmt::format("_Z{}{}", entry.size(), entry));
}

void check_arguments(const KernelFile& file, const std::vector<KernelArgument>& given, const std::vector<int>& taken) {
  if (given.size() != taken.size())
    fail(ATTUNE_INVALID_ARGUMENT, "{}: arguments: there are {}, and the kernel takes {}", file.path, given.size(),
         taken.size());
  for (size_t i = 0; i < given.size(); ++i)
    if (static_cast<int>(given[i].size) != taken[i])
      fail(ATTUNE_INVALID_ARGUMENT,
           "{}: arguments: '{}' has {} bytes, and the kernel's parameter {} has {}; Q, K, V, O and LSE are pointers, "
           "scale and scale_log2 float, expressions int, and int64_t with long before them",
           file.path, file.arguments[i], given[i].size, i + 1, taken[i]);
}

}  // namespace

std::vector<std::string> cuda_header_folders() {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    std::error_code ignored;
    if (!fs::exists(folder / "cuda_fp16.h", ignored)) return;
    const std::string path = fs::weakly_canonical(folder).string();
    if (std::ranges::find(folders, path) == folders.end()) folders.push_back(path);
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* toolkit = std::getenv(variable); toolkit != nullptr) add(fs::path(toolkit) / "include");
  // Beside each NVRTC: lib64 of a toolkit, lib of a wheel.
  for (const std::string& library : jit::search_nvrtc(jit::environment).found) {
    const fs::path folder = fs::path(library).parent_path();
    add(folder / "../include");
    add(folder / "../../cuda_runtime/include");
  }
  add("/usr/local/cuda/include");
  return folders;
}

KernelBuild build_kernel(const KernelFile& file, const Problem& problem, const std::string& arch,
                         const jit::Compiler& compiler) {
  KernelBuild build;
  std::string text;
  if (problem.dtype == Dtype::f16) text += "#include <cuda_fp16.h>\n";
  if (problem.dtype == Dtype::bf16) text += "#include <cuda_bf16.h>\n";
  text += fmt::format("#line 1 \"{}\"\n{}", file.path, file.text);
  build.compiled = compiler.compile_program(file.path, text, options_for(file, problem), arch);
  build.info = jit::read_cubin(build.compiled.cubin);
  if (!is_entry(build.info.kernel, file.entry))
    fail(ATTUNE_INVALID_ARGUMENT, "{}: entry: '{}'; the file's one kernel is {}", file.path, file.entry,
         build.info.kernel);
  check_arguments(file, arguments_of(file, problem, {}, nullptr), build.info.param_sizes);
  return build;
}

KernelResources resources_of(const KernelBuild& build, const KernelLaunch& launch,
                             const gpu::DeviceProperties& device) {
  KernelResources r;
  r.arch = device.arch();
  r.registers = build.info.registers;
  r.stack_bytes = build.info.stack_bytes;
  r.spill_store_bytes = build.compiled.report.spill_store_bytes;
  r.spill_load_bytes = build.compiled.report.spill_load_bytes;
  r.static_shared_bytes = build.info.static_smem_bytes;
  r.dynamic_shared_bytes = static_cast<int>(launch.shared_bytes);
  r.threads = static_cast<int>(launch.threads);
  const int shared = r.static_shared_bytes + r.dynamic_shared_bytes;
  if (build.info.max_threads != 0 && r.threads > build.info.max_threads)
    r.complaint = fmt::format("{} threads, and __launch_bounds__ allows {}", r.threads, build.info.max_threads);
  else if (shared > device.smem_per_block_bytes)
    r.complaint =
        fmt::format("{} bytes of shared memory, and a block may have {}", shared, device.smem_per_block_bytes);
  if (!r.complaint.empty()) return r;
  r.blocks_per_sm = gpu::blocks_per_sm(device, r.registers, r.threads, shared);
  if (r.blocks_per_sm == 0) {
    r.complaint = fmt::format("{} threads of {} registers are more than a multiprocessor has", r.threads, r.registers);
    return r;
  }
  const int warps = (r.threads + warp_threads - 1) / warp_threads;
  const int most_warps = device.capability() == 80 || device.major >= 9 ? 64 : 48;
  r.occupancy = static_cast<double>(r.blocks_per_sm * warps) / most_warps;
  if (r.spill_store_bytes + r.spill_load_bytes > 0)
    r.complaint = "it spills";
  else if (r.stack_bytes > 0)
    r.complaint = "an array lies in local memory";
  return r;
}

}  // namespace attune::lab
