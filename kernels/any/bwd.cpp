// The host's side of kernel "any/bwd".
#include "kernels/any/bwd.cuh"

#include <array>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "kernels/any/call.hpp"

namespace attune::any {
namespace {

using device::any_bwd::Config;
using device::any_bwd::Params;
using device::any_bwd::Part;
using device::any_bwd::RowStats;
using device::any_bwd::SharedStorage;
using device::any_bwd::Variant;

static_assert(device::any_bwd::feature_dlse == ATTUNE_DLSE);

template <Variant variant, Config config>
constexpr bool storage_is_counted =
    sizeof(SharedStorage<variant, config>) == size_t{device::any_bwd::shared_bytes(variant, config)};
static_assert(storage_is_counted<Variant{}, Config{}>);
static_assert(storage_is_counted<Variant{.part = Part::sinks}, Config{}>);

std::string_view name_of(Part part) {
  constexpr std::array<std::string_view, 5> names = {"Part::deltas", "Part::sinks", "Part::keys", "Part::rows",
                                                     "Part::biases"};
  return names.at(static_cast<size_t>(part));
}

std::string text_of(const Variant& variant) {
  return jit::Initializer()
      .add_text("part", name_of(variant.part))
      .add("dtype", variant.dtype)
      .add("dim", variant.dim)
      .add("general", variant.general)
      .text();
}

std::string text_of(const Config& config) {
  return jit::Initializer()
      .add("warps", config.warps)
      .add("slices", config.slices)
      .add("columns", config.columns)
      .add("stages", config.stages)
      .text();
}

// So that rows and keys, and their sums, can be counted in int.
constexpr int64_t longest_sequence = int64_t{1} << 29;

// The simple parts serve every problem of a dtype.
Variant variant_of(Part part, const Problem& problem) {
  if (!is_tiled(part)) return {part, device_dtype(problem.dtype)};
  const bool general = problem.softcap != 0 || problem.has(ATTUNE_BIAS) || problem.has(ATTUNE_MASK);
  return {part, device_dtype(problem.dtype), compiled_dim(problem), general};
}

// Those whose dk and dv fit the registers, best first. Not measured: large tiles read less, two stages hide the
// reading.
std::vector<Config> configs_for(const Problem& problem, const gpu::DeviceProperties& device) {
  const Variant largest = variant_of(Part::keys, problem);
  const int slices = largest.dim <= 128 ? 1 : largest.dim <= 256 ? 2 : 4;
  std::vector<Config> candidates;
  if (largest.dtype == device::Dtype::f32)
    candidates = {{4, slices, 16, 1}, {2, slices, 16, 1}, {2, slices, 8, 1}, {1, slices, 8, 1}};
  else
    candidates = {{4, slices, 32, 2}, {4, slices, 16, 2}, {4, slices, 16, 1},
                  {2, slices, 16, 2}, {2, slices, 16, 1}, {1, slices, 16, 1}};
  std::erase_if(candidates, [&](const Config& config) {
    // What a general variant holds beside 32 columns does not fit the registers.
    return !legal(largest, config, device.smem_per_block_bytes) || threads_of(largest, config) > 256 ||
           (largest.general && config.columns > 16);
  });
  return candidates;
}

device::any::Strides strides_of(const attune_strides& s) { return {s.batch, s.row, s.head}; }

// Everything but the pointers.
Params constants_of(const Problem& problem) {
  Params params{};
  params.call = call_of(problem);
  params.dout_strides = strides_of(problem.dout);
  params.dlse_strides = strides_of(problem.dlse);
  params.dq_strides = strides_of(problem.dq);
  params.dk_strides = strides_of(problem.dk);
  params.dv_strides = strides_of(problem.dv);
  params.dbias_strides = {problem.dbias.batch, problem.dbias.head, problem.dbias.query, problem.dbias.key};
  params.stat_rows = problem.packed() ? problem.total_q : problem.batch * problem.seq_q;
  params.bias_rows = problem.seq_q;
  params.bias_keys = problem.seq_k;
  return params;
}

void bind_params(Params& params, const Operands& operands, const gpu::Driver&) {
  set_pointers(params.call, operands);
  const auto has = [&](attune_features feature) { return (params.call.features & feature) != 0; };
  params.dout = operands.in(Operand::dout);
  if (has(ATTUNE_DLSE)) params.dlse = operands.in<float>(Operand::dlse);
  params.dq = operands.out(Operand::dq);
  params.dk = operands.out(Operand::dk);
  params.dv = operands.out(Operand::dv);
  if (has(ATTUNE_DSINK)) params.dsink = operands.out<float>(Operand::dsink);
  if (has(ATTUNE_DBIAS)) params.dbias = operands.out(Operand::dbias);
  params.stats = static_cast<RowStats*>(operands.workspace);
}

std::vector<Part> parts_of(const Problem& problem) {
  std::vector<Part> parts = {Part::deltas};
  if (problem.has(ATTUNE_DSINK)) parts.push_back(Part::sinks);
  parts.insert(parts.end(), {Part::keys, Part::rows});
  if (problem.has(ATTUNE_DBIAS) && has_elements(problem, row_of(Operand::dbias))) parts.push_back(Part::biases);
  return parts;
}

jit::DeviceUnit unit_of(const Variant& variant, const Config& config) {
  jit::DeviceUnit unit;
  unit.name = "any/bwd";
  unit.file = "kernels/any/bwd.cuh";
  unit.scope = "attune::device::any_bwd";
  unit.variant = text_of(variant);
  unit.config = text_of(config);
  unit.threads = static_cast<uint32_t>(threads_of(variant, config));
  unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
  unit.layout = {ATTUNE_SIZE_FACT(Params),
                 ATTUNE_OFFSET_FACT(Params, call.softcap),
                 ATTUNE_OFFSET_FACT(Params, stats),
                 ATTUNE_OFFSET_FACT(Params, dbias_strides),
                 ATTUNE_OFFSET_FACT(Params, bias_keys),
                 {"sizeof(SharedStorage<variant, config>)", unit.smem_bytes}};
  return unit;
}

class Backward final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "any/bwd"; }
  const Operation& operation() const override { return backward_operation; }

  // No card has run it yet: docs/adding-a-kernel.md says what must pass before this line goes.
  bool selectable() const override { return false; }

  std::string refusal_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    if (device.capability() < 80) return fmt::format("{} is older than sm_80", device.arch());
    const device::any::Call call = call_of(problem);
    const int64_t longest = std::max(call.seq_q, call.seq_k);
    if (longest > longest_sequence) return fmt::format("a sequence of {} is longer than {}", longest, longest_sequence);
    return {};
  }

  // The prediction is too coarse to tell configurations apart.
  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    const double flops_per_second_and_sm = problem.dtype == Dtype::f32 ? 60e9 : 700e9;
    const double seconds = 15e-6 + useful_flops(problem) / (flops_per_second_and_sm * device.sm_count);
    std::vector<Configuration> list;
    for (const Config& config : configs_for(problem, device)) list.push_back({text_of(config), seconds});
    return list;
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Config& config : configs_for(problem, device))
      if (text_of(config) == text) return recipe(problem, config);
    fail(ATTUNE_INVALID_ARGUMENT, "any/bwd has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  static gpu::Recipe recipe(const Problem& problem, const Config& config) {
    const Params params = constants_of(problem);
    gpu::Recipe recipe;
    recipe.workspace_bytes = sizeof(RowStats) * static_cast<uint64_t>(problem.heads_q * params.stat_rows);
    for (const Part part : parts_of(problem)) {
      const Variant variant = variant_of(part, problem);
      recipe.steps.push_back(
          gpu::make_step(unit_of(variant, config), grid_for(blocks_of(part, config, params)), params, bind_params));
    }
    return recipe;
  }
};
const Registration<Backward> registration;

}  // namespace
}  // namespace attune::any
