#include "lab/check/executor.hpp"

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "dispatch/select.hpp"

namespace attune::lab {
namespace {

class CpuExecutor final : public Executor {
 public:
  DeviceKind device_kind() const override { return DeviceKind::cpu; }

  Choice choose(std::string_view kernel, const Problem& problem) override {
    const Selection selection = select(problem, context(kernel, settings().front()), kernel);
    return {selection.chosen == nullptr ? "" : std::string(selection.chosen->name()), selection.why};
  }

  std::vector<std::string> settings() const override { return {"threads=all", "threads=1", "threads=3"}; }

  void forward(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    Context& with = context(kernel, setting);
    attune_forward_desc desc = desc_from(tensors.problem);
    // Rows that belong to no sequence, which a GPU passes over, are not in the tensors of a call on the CPU.
    if (tensors.problem.packed()) {
      desc.total_q = tensors.cu_seqlens_q.as<int32_t>()[desc.batch];
      desc.total_k = tensors.cu_seqlens_k.as<int32_t>()[desc.batch];
    }
    // Poisoned like everything else: a workspace holds nothing a kernel may rely on.
    const uint64_t bytes = with.plan_for(desc)->workspace_bytes();
    std::vector<std::byte, AlignedAllocator<std::byte>> workspace(bytes + workspace_alignment, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    attune_forward_args args = tensors.args();
    args.workspace = workspace.data() + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
    args.workspace_bytes = bytes;
    with.forward(desc, args, nullptr);
  }

  void merge(const attune_merge_desc& desc, const attune_merge_args& args) override {
    context("", settings().front()).merge(desc, args, nullptr);
  }

 private:
  static constexpr size_t workspace_alignment = 256;

  Context& context(std::string_view kernel, std::string_view setting) {
    auto& slot = contexts_[{std::string(kernel), std::string(setting)}];
    if (!slot) {
      const std::string name(kernel);
      attune_options options{};
      options.struct_size = sizeof options;
      options.kernel = name.empty() ? nullptr : name.c_str();
      options.threads = setting == "threads=1" ? 1 : setting == "threads=3" ? 3 : 0;
      slot = std::make_unique<Context>(options);
    }
    return *slot;
  }

  std::map<std::pair<std::string, std::string>, std::unique_ptr<Context>> contexts_;
};

}  // namespace

std::vector<std::string> Executor::kernels() const {
  const Context context{attune_options{}};
  std::vector<std::string> names;
  for (const bool selectable : {true, false})
    for (const Kernel* kernel : attune::kernels())
      if (kernel->device_kind() == device_kind() && kernel->selectable() == selectable &&
          absence_of(*kernel, context).empty())
        names.emplace_back(kernel->name());
  return names;
}

std::string absence_of(const Kernel& kernel, const Context& context) {
  // Every kernel takes this one, unless the machine lacks something.
  Problem problem = parse_problem("fwd b1 h1/1 q64 k64 d64 f16");
  problem.device_kind = kernel.device_kind();
  return kernel.refusal(problem, context);
}

std::unique_ptr<Executor> make_cpu_executor() { return std::make_unique<CpuExecutor>(); }

}  // namespace attune::lab
