// The host's side of kernel "any/reference".
#include "kernels/any/reference.hpp"

#include "core/error.hpp"
#include "jit/fields.hpp"
#include "kernels/any/call.hpp"
#include "kernels/any/reference.cuh"

namespace attune::jit {

using ReferenceVariant = device::any_reference::Variant;
using ReferenceConfig = device::any_reference::Config;
template <>
inline constexpr auto fields<ReferenceVariant> =
    list(ATTUNE_FIELD(ReferenceVariant, dtype), ATTUNE_FIELD(ReferenceVariant, dim_qk),
         ATTUNE_FIELD(ReferenceVariant, dim_v));
template <>
inline constexpr auto fields<ReferenceConfig> = list(ATTUNE_FIELD(ReferenceConfig, warps));

}  // namespace attune::jit

namespace attune::any {
namespace {

using device::any_reference::Config;
using device::any_reference::Params;
using device::any_reference::Variant;
using jit::text_of;

static_assert(sizeof(device::any_reference::SharedStorage<Variant{}, Config{}>) ==
              device::any_reference::shared_bytes(Variant{}, Config{}));

class Reference final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "any/reference"; }
  bool selectable() const override { return false; }

  std::string refusal_on(const Problem&, const gpu::DeviceProperties& device) const override {
    if (device.capability() < 80) return fmt::format("{} is older than sm_80", device.arch());
    return {};
  }

  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    return {{text_of(Config{}), 20e-6 + useful_flops(problem) / (5e9 * device.sm_count)}};
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties&, std::string_view text) const override {
    const Variant variant{device_dtype(problem.dtype), compiled_dim(problem), compiled_dim(problem)};
    const Config config;
    jit::DeviceUnit unit;
    unit.name = "any/reference";
    unit.file = "kernels/any/reference.cuh";
    unit.scope = "attune::device::any_reference";
    unit.variant = text_of(variant);
    unit.config = text;
    unit.threads = static_cast<uint32_t>(config.warps * 32);
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout = {ATTUNE_SIZE_FACT(Params),
                   ATTUNE_OFFSET_FACT(Params, call.softcap),
                   ATTUNE_OFFSET_FACT(Params, blocks),
                   {"sizeof(SharedStorage<variant, config>)", unit.smem_bytes}};
    Params params{};
    params.call = call_of(problem);
    params.blocks = (params.call.seq_q + config.warps - 1) / config.warps * params.call.heads * params.call.batch;
    return {{gpu::make_step(
                unit, grid_for(params.blocks), params,
                [](Params& out, const Operands& operands, const gpu::Driver&) { set_pointers(out.call, operands); })},
            0};
  }
};
const Registration<Reference> registration;

gpu::Recipe recipe_for(const Problem& problem, const gpu::DeviceProperties& device) {
  const gpu::GpuKernel& kernel = gpu::find_gpu_kernel("any/reference");
  return kernel.recipe(problem, device, kernel.space(problem, device).at(0));
}

}  // namespace

DeviceReference::DeviceReference(const Problem& problem, gpu::Runtime& runtime)
    : device_(runtime.device(problem.device_index)),
      recipe_(recipe_for(problem, device_.properties())),
      launch_(runtime.load(recipe_.steps[0].unit, problem.device_index).function, recipe_.steps[0].grid,
              recipe_.steps[0].unit, false),
      rows_(problem.packed() ? problem.total_q : problem.batch * problem.seq_q) {}

void DeviceReference::run(const Operands& operands, double* o, double* lse, void* stream) const {
  const gpu::CurrentContext current(device_.driver(), device_.context());
  alignas(64) Params params;
  recipe_.steps[0].bind(device_.driver(), operands, &params);
  params.o = o;
  params.lse = lse;
  launch_(device_.driver(), &params, static_cast<gpu::CUstream>(stream));
}

}  // namespace attune::any
