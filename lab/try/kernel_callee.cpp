#include "lab/try/kernel_callee.hpp"

#include <climits>

#include "core/error.hpp"
#include "gpu/device.hpp"
#include "gpu/driver.hpp"
#include "jit/nvrtc.hpp"
#include "lab/try/kernel_build.hpp"

namespace attune::lab {
namespace {

class KernelCallee final : public Callee {
 public:
  KernelCallee(const std::string& path, const Problem& problem, std::string name)
      : file_(read_kernel_file(path)), problem_(problem), name_(std::move(name)), driver_(gpu::driver()) {
    if (const std::string why = refusal_of(file_, problem_); !why.empty())
      fail(ATTUNE_UNSUPPORTED, "{}: {}", name_, why);
    const gpu::Device device(driver_, problem.device_index);
    launch_ = launch_of(file_, problem_);
    const KernelBuild build =
        build_kernel(file_, problem_, device.properties().arch(), jit::find_nvrtc(driver_.major()));
    resources_ = resources_of(build, launch_, device.properties());
    if (resources_.blocks_per_sm == 0) fail(ATTUNE_INVALID_ARGUMENT, "{}: {}", name_, resources_.complaint);
    driver_.check(driver_.cuModuleLoadData(&module_, build.compiled.cubin.data()), name_.c_str());
    driver_.check(driver_.cuModuleGetFunction(&function_, module_, build.info.kernel.c_str()), name_.c_str());
    if (launch_.shared_bytes > 0)
      driver_.check(driver_.cuFuncSetAttribute(function_, gpu::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                               static_cast<int>(launch_.shared_bytes)),
                    name_.c_str());
  }
  KernelCallee(const KernelCallee&) = delete;
  KernelCallee& operator=(const KernelCallee&) = delete;
  ~KernelCallee() override { driver_.cuModuleUnload(module_); }

  std::string_view name() const override { return name_; }

  // A kernel that always writes the LSE writes it there where nobody asks for it.
  uint64_t workspace_bytes() const override {
    if (!file_.takes("LSE") || problem_.has(ATTUNE_LSE)) return 0;
    return static_cast<uint64_t>(problem_.batch * problem_.heads_q * problem_.seq_q) * sizeof(float);
  }

  void run(const Operands& operands, void* stream) override {
    void* const lse = problem_.has(ATTUNE_LSE) ? operands.out(Operand::lse) : operands.workspace;
    std::vector<KernelArgument> arguments = arguments_of(file_, problem_, operands, lse);
    std::vector<void*> pointers;
    for (KernelArgument& argument : arguments) pointers.push_back(argument.bytes.data());
    const gpu::CUlaunchConfig config{launch_.grid[0],
                                     launch_.grid[1],
                                     launch_.grid[2],
                                     launch_.threads,
                                     1,
                                     1,
                                     launch_.shared_bytes,
                                     static_cast<gpu::CUstream>(stream),
                                     nullptr,
                                     0};
    driver_.check(driver_.cuLaunchKernelEx(&config, function_, pointers.data(), nullptr), name_.c_str());
  }

  Facts facts() const override {
    return {{"source", file_.path},
            {"registers", std::to_string(resources_.registers)},
            {"grid", fmt::format("{}", fmt::join(launch_.grid, ","))}};
  }

 private:
  KernelFile file_;
  Problem problem_;
  std::string name_;
  const gpu::Driver& driver_;
  KernelLaunch launch_;
  KernelResources resources_;
  gpu::CUmodule module_ = nullptr;
  gpu::CUfunction function_ = nullptr;
};

}  // namespace

std::unique_ptr<Callee> kernel_callee(const std::string& path, const Problem& problem, std::string name) {
  if (problem.device_kind != DeviceKind::cuda) fail(ATTUNE_UNSUPPORTED, "{}: it runs on a GPU", path);
  return std::make_unique<KernelCallee>(path, problem, name.empty() ? path : std::move(name));
}

}  // namespace attune::lab
