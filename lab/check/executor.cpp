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

  void run(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    Context& with = context(kernel, setting);
    const Problem problem = without_spare_rows(tensors);
    // Poisoned like everything else: a workspace holds nothing a kernel may rely on.
    const uint64_t bytes = with.plan_for(problem)->workspace_bytes();
    std::vector<std::byte, AlignedAllocator<std::byte>> workspace(bytes + workspace_alignment, std::byte{0xff});
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    Operands operands = tensors.operands();
    operands.workspace = workspace.data() + (workspace_alignment - address % workspace_alignment) % workspace_alignment;
    operands.workspace_bytes = bytes;
    with.run(problem, operands, nullptr);
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

std::vector<std::string> Executor::kernels(const Operation& operation) const {
  const Context context{attune_options{}};
  std::vector<std::string> names;
  for (const bool selectable : {true, false})
    for (const Kernel* kernel : attune::kernels())
      if (kernel->device_kind() == device_kind() && &kernel->operation() == &operation &&
          kernel->selectable() == selectable && absence_of(*kernel, context).empty())
        names.emplace_back(kernel->name());
  return names;
}

std::string absence_of(const Kernel& kernel, const Context& context) {
  // Every kernel takes the example of its operation, unless the machine lacks something.
  Problem problem = parse_problem(kernel.operation().example);
  problem.device_kind = kernel.device_kind();
  return kernel.refusal(problem, context);
}

std::unique_ptr<Executor> make_cpu_executor() { return std::make_unique<CpuExecutor>(); }

}  // namespace attune::lab
