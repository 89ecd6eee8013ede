// The host's side of kernel "any/fwd".
#include "kernels/any/fwd.cuh"

#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/any/call.hpp"

namespace attune::jit {

using device::any_fwd::Config;
using device::any_fwd::Variant;
template <>
inline constexpr auto fields<Variant> =
    list(ATTUNE_FIELD(Variant, dtype), ATTUNE_FIELD(Variant, dim_qk), ATTUNE_FIELD(Variant, dim_v));
template <>
inline constexpr auto fields<Config> = list(ATTUNE_FIELD(Config, warps), ATTUNE_FIELD(Config, rows_per_warp));

}  // namespace attune::jit

namespace attune::any {
namespace {

using device::any_fwd::Config;
using device::any_fwd::Params;
using device::any_fwd::Variant;

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
  std::vector<gpu::Choice> choices(const Problem& problem, const gpu::DeviceProperties& device) const override {
    const double flops_per_second_and_sm = problem.dtype == Dtype::f32 ? 15e9 : 60e9;
    const double seconds = 10e-6 + useful_flops(problem) / (flops_per_second_and_sm * device.sm_count);
    std::vector<gpu::Choice> list;
    for (const Config& config : configs_for(problem, device))
      list.push_back(
          {seconds, [config] { return jit::text_of(config); }, [problem, config] { return recipe(problem, config); }});
    return list;
  }

 private:
  static gpu::Recipe recipe(const Problem& problem, const Config& config) {
    const Variant variant = variant_of(problem);
    jit::DeviceUnit unit;
    unit.name = "any/fwd";
    unit.file = "kernels/any/fwd.cuh";
    unit.scope = "attune::device::any_fwd";
    unit.variant = jit::text_of(variant);
    unit.config = jit::text_of(config);
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
