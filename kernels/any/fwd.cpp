// The host's side of kernel "any/fwd".
#include "kernels/any/fwd.cuh"

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/any/call.hpp"

namespace attune::jit {

using AnyFwdVariant = device::any_fwd::Variant;
using AnyFwdConfig = device::any_fwd::Config;
template <>
inline constexpr auto fields<AnyFwdVariant> =
    list(ATTUNE_FIELD(AnyFwdVariant, dtype), ATTUNE_FIELD(AnyFwdVariant, dim_qk), ATTUNE_FIELD(AnyFwdVariant, dim_v));
template <>
inline constexpr auto fields<AnyFwdConfig> =
    list(ATTUNE_FIELD(AnyFwdConfig, warps), ATTUNE_FIELD(AnyFwdConfig, rows_per_warp));

}  // namespace attune::jit

namespace attune::any {
namespace {

using device::any_fwd::Config;
using device::any_fwd::Params;
using device::any_fwd::Variant;
using jit::text_of;

static_assert(sizeof(device::any_fwd::SharedStorage<Variant{}, Config{}>) ==
              device::any_fwd::shared_bytes(Variant{}, Config{}));

Variant variant_of(const Problem& problem) {
  return {device_dtype(problem.dtype), compiled_dim(problem), compiled_dim(problem)};
}

// Best first: many rows per CTA share a tile of keys; few queries need few rows.
std::vector<Config> configs_for(const Problem& problem, const gpu::DeviceProperties& device) {
  const Variant variant = variant_of(problem);
  const bool wide = variant.dtype == device::Dtype::f32 || std::max(variant.dim_qk, variant.dim_v) > 256;
  std::vector<Config> candidates;
  if (problem.seq_q <= 8)
    candidates = {{4, 1}, {4, 2}, {8, 1}, {8, 2}, {8, 4}, {4, 4}};
  else if (wide)
    candidates = {{8, 2}, {4, 2}, {8, 1}, {4, 1}, {4, 4}, {8, 4}};
  else
    candidates = {{8, 4}, {4, 4}, {8, 2}, {4, 2}, {8, 1}, {4, 1}};
  std::erase_if(candidates, [&](const Config& config) { return !legal(variant, config, device.smem_per_block_bytes); });
  return candidates;
}

class Forward final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "any/fwd"; }

  std::string refusal_on(const Problem&, const gpu::DeviceProperties& device) const override {
    if (device.capability() < 80) return fmt::format("{} is older than sm_80", device.arch());
    return {};
  }

  // The prediction is too coarse to tell configurations apart.
  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    const double flops_per_second_and_sm = problem.dtype == Dtype::f32 ? 15e9 : 60e9;
    const double seconds = 10e-6 + useful_flops(problem) / (flops_per_second_and_sm * device.sm_count);
    std::vector<Configuration> list;
    for (const Config& config : configs_for(problem, device)) list.push_back({text_of(config), seconds});
    return list;
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Config& config : configs_for(problem, device))
      if (text_of(config) == text) return recipe(problem, config);
    fail(ATTUNE_INVALID_ARGUMENT, "any/fwd has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  static gpu::Recipe recipe(const Problem& problem, const Config& config) {
    const Variant variant = variant_of(problem);
    jit::DeviceUnit unit;
    unit.name = "any/fwd";
    unit.file = "kernels/any/fwd.cuh";
    unit.scope = "attune::device::any_fwd";
    unit.variant = text_of(variant);
    unit.config = text_of(config);
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, call.used_k),
                   ATTUNE_OFFSET_FACT(Params, call.mask_strides), ATTUNE_OFFSET_FACT(Params, call.softcap),
                   ATTUNE_OFFSET_FACT(Params, blocks)};
    unit.threads = static_cast<uint32_t>(config.warps * 32);
    const bool narrow = variant.dtype != device::Dtype::f32 && std::max(variant.dim_qk, variant.dim_v) <= 192;
    unit.min_blocks_per_sm = narrow ? 2 : 1;
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    params.call = call_of(problem);
    const int64_t rows = int64_t{config.warps} * config.rows_per_warp;
    params.blocks = (params.call.seq_q + rows - 1) / rows * params.call.heads * params.call.batch;
    return {{gpu::make_step(
                unit, grid_for(params.blocks), params,
                [](Params& out, const Operands& operands, const gpu::Driver&) { set_pointers(out.call, operands); })},
            0};
  }
};
const Registration<Forward> registration;

}  // namespace
}  // namespace attune::any
