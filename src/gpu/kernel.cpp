#include "gpu/kernel.hpp"

#include <cmath>
#include <cstddef>

#include "dispatch/context.hpp"
#include "gpu/runtime.hpp"

namespace attune::gpu {
namespace {

class GpuPlan final : public Plan {
 public:
  GpuPlan(const Kernel& of_kernel, const Problem& of_problem, Recipe recipe, Runtime& runtime)
      : Plan(of_kernel, of_problem),
        recipe_(std::move(recipe)),
        driver_(runtime.device(problem.device_index).driver()),
        context_(runtime.device(problem.device_index).context()) {
    for (const Step& step : recipe_.steps) {
      if (step.unit.params_bytes > largest_params_bytes)
        fail(ATTUNE_INTERNAL_ERROR, "{}: {} bytes of parameters", label_of(step.unit), step.unit.params_bytes);
      const LoadedKernel& loaded = runtime.load(step.unit, problem.device_index);
      loaded_.push_back(&loaded);
      // Only the first launch of a call may overlap what runs before it. Later ones read what the one before has just
      // written to the workspace, at addresses that the next call writes again; on a busy card, calls whose launches
      // overlapped have once given other bits (HopperRepeats in tests/sm90), for a reason that is not known yet.
      launches_.emplace_back(loaded.function, step.grid, step.unit, step.programmatic && launches_.empty());
    }
  }

  void run(const Operands& operands, void* stream) const override {
    const CurrentContext current(driver_, context_);
    alignas(64) std::byte params[largest_params_bytes];
    for (size_t i = 0; i < launches_.size(); ++i) {
      recipe_.steps[i].bind(driver_, operands, params);
      launches_[i](driver_, params, static_cast<CUstream>(stream));
    }
  }

  uint64_t workspace_bytes() const override { return recipe_.workspace_bytes; }

  std::string describe() const override {
    std::string text;
    for (size_t i = 0; i < launches_.size(); ++i) {
      const jit::DeviceUnit& unit = recipe_.steps[i].unit;
      const jit::Built& built = *loaded_[i]->built;
      const jit::Dim3 grid = launches_[i].grid();
      text += fmt::format(
          "variant: {}\nconfig: {}\ngrid: {} x {} x {}, {} threads, cluster {} x {} x {}\nregisters: {}\n"
          "shared memory: {} bytes\ncubin: {} ({} bytes of code), from {}, NVRTC {}{}, ready in {:.1f} ms\n",
          unit.variant, unit.config, grid.x, grid.y, grid.z, unit.threads, unit.cluster.x, unit.cluster.y,
          unit.cluster.z, built.info.registers, unit.smem_bytes + built.info.static_smem_bytes, to_string(built.key),
          built.info.code_bytes, name_of(built.origin), built.compiler_version, built.measured ? "" : " (unmeasured)",
          loaded_[i]->load_seconds * 1e3);
      if (!built.cache_troubles.empty()) text += fmt::format("kernel cache: {}\n", built.cache_troubles);
    }
    return text;
  }

 private:
  const Recipe recipe_;
  const Driver& driver_;
  const CUcontext context_;
  std::vector<const LoadedKernel*> loaded_;
  std::vector<Launch> launches_;
};

}  // namespace

std::string GpuKernel::refusal(const Problem& problem, const Context& context) const {
  const Runtime& runtime = context.gpu();
  if (problem.device_index < 0 || problem.device_index >= runtime.device_count())
    return runtime.device_count() == 0 ? runtime.absence()
                                       : fmt::format("there is no CUDA device {}", problem.device_index);
  // Kernels multiply scores by scale * log2(e) in float32.
  constexpr float most_scale = 2e38f;
  if (!(std::abs(problem.scale) <= most_scale))
    return fmt::format("scale {} is not within -{:g} .. {:g}", problem.scale, most_scale, most_scale);
  return refusal_on(problem, runtime.properties(problem.device_index));
}

std::vector<std::string> GpuKernel::space(const Problem& problem, const DeviceProperties& device) const {
  std::vector<std::string> texts;
  for (Configuration& configuration : configurations_on(problem, device))
    texts.push_back(std::move(configuration.text));
  return texts;
}

std::vector<Configuration> GpuKernel::configurations(const Problem& problem, const Context& context) const {
  return configurations_on(problem, context.gpu().properties(problem.device_index));
}

Choice GpuKernel::choice_on(const Problem& problem, const DeviceProperties& device) const {
  const Configuration best = configurations_on(problem, device).at(0);
  return {best.predicted_seconds, [this, problem, device, text = best.text] { return recipe(problem, device, text); }};
}

double GpuKernel::predicted_seconds(const Problem& problem, const Context& context) const {
  return offer(problem, context).predicted_seconds;
}

bool GpuKernel::overlaps(const Problem& problem, const Context& context) const {
  return offer(problem, context).overlaps;
}

std::unique_ptr<const Plan> GpuKernel::plan(const Problem& problem, Context& context) const {
  return offer(problem, context).plan(context);
}

Offer GpuKernel::offer(const Problem& problem, const Context& context) const {
  Choice choice = choice_on(problem, context.gpu().properties(problem.device_index));
  const bool overlaps = problem.has(ATTUNE_OVERLAP) && choice.recipe().steps.at(0).programmatic;
  return {choice.predicted_seconds, overlaps, [this, problem, recipe = std::move(choice.recipe)](Context& with) {
            return std::make_unique<const GpuPlan>(*this, problem, recipe(), with.gpu());
          }};
}

std::unique_ptr<const Plan> GpuKernel::plan_with(const Problem& problem, Context& context,
                                                 std::string_view config) const {
  Runtime& runtime = context.gpu();
  const DeviceProperties& device = runtime.properties(problem.device_index);
  return std::make_unique<const GpuPlan>(*this, problem, recipe(problem, device, config), runtime);
}

std::vector<const GpuKernel*> gpu_kernels() {
  std::vector<const GpuKernel*> list;
  for (const Kernel* kernel : kernels())
    if (const auto* gpu = dynamic_cast<const GpuKernel*>(kernel)) list.push_back(gpu);
  return list;
}

const GpuKernel& find_gpu_kernel(std::string_view name) {
  std::string known;
  for (const GpuKernel* kernel : gpu_kernels()) {
    if (kernel->name() == name) return *kernel;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kernel->name());
  }
  fail(ATTUNE_INVALID_ARGUMENT, "no GPU kernel is called '{}'; there are {}", name, known);
}

}  // namespace attune::gpu
