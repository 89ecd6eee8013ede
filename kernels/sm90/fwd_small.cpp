// The host's side of kernel "sm90/fwd_small": which problems are small, and how their keys are split.
#include "kernels/sm90/fwd_small.cuh"

#include <algorithm>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "kernels/sm90/host.hpp"

namespace attune::sm90 {
namespace {

using device::ceil_div;
using device::sm90_fwd_small::Config;
using device::sm90_fwd_small::Params;
using device::sm90_fwd_small::tile_rows;
using device::sm90_fwd_small::Variant;

// A configuration and what it costs on an H200, in microseconds: a launch, and a round of blocks, one for each group of
// the CTA. Fitted to measured runs; see docs/notebook.md.
struct Candidate {
  int dim;
  Config config;
  double launch_us, round_us;
};

constexpr Candidate candidates[] = {
    {64, {.key_groups = 4, .block_n = 64, .stages = 2, .cluster = 1}, 2.9, 1.37},
    {64, {.key_groups = 2, .block_n = 64, .stages = 4, .cluster = 1}, 2.9, 0.85},
    {64, {.key_groups = 2, .block_n = 64, .stages = 2, .cluster = 2}, 3.3, 0.98},
    {128, {.key_groups = 2, .block_n = 64, .stages = 2, .cluster = 1}, 3.6, 1.25},
};

static_assert(sizeof(device::sm90_fwd_small::SharedStorage<Variant{.dim = 64}, candidates[2].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[2].config));

Variant variant_of(const Problem& problem) {
  return {static_cast<device::Dtype>(problem.dtype), static_cast<int>(problem.dim_qk), problem.causal != Causal::none};
}

std::string text_of(const Variant& variant) {
  return jit::Initializer().add("dtype", variant.dtype).add("dim", variant.dim).add("causal", variant.causal).text();
}

std::string text_of(const Config& config) {
  return jit::Initializer()
      .add("key_groups", config.key_groups)
      .add("block_n", config.block_n)
      .add("stages", config.stages)
      .add("cluster", config.cluster)
      .text();
}

// CTAs run in waves: as many at once as there are SMs.
double predicted_us(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  const Config& config = candidate.config;
  const int64_t tiles = ceil_div<int64_t>(problem.seq_q, tile_rows) * problem.heads_q * problem.batch;
  const int64_t waves = ceil_div<int64_t>(tiles * config.cluster, device.sm_count);
  const int64_t blocks = ceil_div<int64_t>(keys_in_use(problem), config.block_n);
  const int64_t rounds = ceil_div<int64_t>(blocks, int64_t{config.key_groups} * config.cluster);
  return static_cast<double>(waves) * (candidate.launch_us + static_cast<double>(rounds) * candidate.round_us);
}

class ForwardSmall final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "sm90/fwd_small"; }
  int64_t pointer_alignment(const Problem&) const override { return gpu::tensor_map_alignment; }

  std::string refusal_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    if (problem.dim_qk != 64 && problem.dim_qk != 128)
      return fmt::format("head dim {} is not 64 or 128", problem.dim_qk);
    constexpr int64_t grid_limit = 65535;
    if (problem.heads_q > grid_limit || problem.batch > grid_limit)
      return "there are more than 65535 heads or sequences";
    return common_refusal(problem, device);
  }

  double predicted_seconds_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    return predicted_us(problem, *best_first(problem, device).at(0), device) * 1e-6;
  }

  std::vector<std::string> space(const Problem& problem, const gpu::DeviceProperties& device) const override {
    std::vector<std::string> texts;
    for (const Candidate* candidate : best_first(problem, device)) texts.push_back(text_of(candidate->config));
    return texts;
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Candidate* candidate : best_first(problem, device))
      if (text_of(candidate->config) == text) return recipe(problem, candidate->config);
    fail(ATTUNE_INVALID_ARGUMENT, "sm90/fwd_small has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  static std::vector<const Candidate*> best_first(const Problem& problem, const gpu::DeviceProperties& device) {
    std::vector<const Candidate*> list;
    for (const Candidate& candidate : candidates)
      if (candidate.dim == problem.dim_qk && legal(variant_of(problem), candidate.config, device.smem_per_block_bytes))
        list.push_back(&candidate);
    std::ranges::sort(list, {}, [&](const Candidate* candidate) { return predicted_us(problem, *candidate, device); });
    return list;
  }

  static gpu::Recipe recipe(const Problem& problem, const Config& config) {
    const Variant variant = variant_of(problem);
    jit::DeviceUnit unit;
    unit.name = "sm90/fwd_small";
    unit.file = "kernels/sm90/fwd_small.cuh";
    unit.scope = "attune::device::sm90_fwd_small";
    unit.variant = text_of(variant);
    unit.config = text_of(config);
    unit.threads = static_cast<uint32_t>(threads(config));
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.cluster = {static_cast<uint32_t>(config.cluster), 1, 1};
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, o), ATTUNE_OFFSET_FACT(Params, seq_q),
                   ATTUNE_OFFSET_FACT(Params, scale_log2)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    set_constants(params, problem);
    const Maps maps = maps_of(problem, tile_rows, config.block_n);
    const auto fill = [maps](Params& out, const attune_forward_args& args, const gpu::Driver& driver) {
      set_pointers(out, maps, args, driver);
    };
    const jit::Dim3 grid = {static_cast<uint32_t>(ceil_div<int64_t>(problem.seq_q, tile_rows) * config.cluster),
                            static_cast<uint32_t>(problem.heads_q), static_cast<uint32_t>(problem.batch)};
    return {{gpu::make_step(unit, grid, params, fill)}, 0};
  }
};
const Registration<ForwardSmall> registration;

}  // namespace
}  // namespace attune::sm90
