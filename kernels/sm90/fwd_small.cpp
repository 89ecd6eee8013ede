// The host's side of kernel "sm90/fwd_small": which problems are small, and how their keys are split.
#include "kernels/sm90/fwd_small.cuh"

#include <algorithm>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/common/wgmma.cuh"
#include "kernels/sm90/fwd_small_cost.hpp"
#include "kernels/sm90/host.hpp"

namespace attune::jit {

using FwdSmallVariant = device::sm90_fwd_small::Variant;
using FwdSmallConfig = device::sm90_fwd_small::Config;
template <>
inline constexpr auto fields<FwdSmallVariant> =
    list(ATTUNE_FIELD(FwdSmallVariant, dtype), ATTUNE_FIELD(FwdSmallVariant, dim),
         ATTUNE_FIELD(FwdSmallVariant, causal), ATTUNE_FIELD(FwdSmallVariant, early_keys));
template <>
inline constexpr auto fields<FwdSmallConfig> =
    list(ATTUNE_FIELD(FwdSmallConfig, row_groups), ATTUNE_FIELD(FwdSmallConfig, key_groups),
         ATTUNE_FIELD(FwdSmallConfig, block_n), ATTUNE_FIELD(FwdSmallConfig, stages),
         ATTUNE_FIELD(FwdSmallConfig, cluster), ATTUNE_FIELD(FwdSmallConfig, paired));

}  // namespace attune::jit

namespace attune::sm90 {
namespace {

using device::ceil_div;
using device::divisor_of;
using device::sm90_fwd_small::Config;
using device::sm90_fwd_small::Params;
using device::sm90_fwd_small::rows_per_warpgroup;
using device::sm90_fwd_small::Variant;
using jit::text_of;

struct Candidate {
  int dim;
  Config config;
  FwdSmallCost cost;
  int ctas_per_sm = 1;
};

constexpr Candidate candidates[] = {
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 1, .cluster = 1},
     fwd_small_costs::d64_groups_1x2_keys_64_stages_1_cluster_1},
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 128, .stages = 1, .cluster = 2},
     fwd_small_costs::d64_groups_1x2_keys_128_stages_1_cluster_2},
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 1},
     fwd_small_costs::d64_groups_1x2_keys_64_stages_4_cluster_1},
    {64,
     {.row_groups = 1, .key_groups = 4, .block_n = 64, .stages = 2, .cluster = 1},
     fwd_small_costs::d64_groups_1x4_keys_64_stages_2_cluster_1},
    {64,
     {.row_groups = 2, .key_groups = 2, .block_n = 64, .stages = 3, .cluster = 1},
     fwd_small_costs::d64_groups_2x2_keys_64_stages_3_cluster_1},
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 3, .cluster = 1, .paired = true},
     fwd_small_costs::d64_groups_1x2_keys_64_stages_3_paired,
     2},
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 4},
     fwd_small_costs::d64_groups_1x2_keys_64_stages_4_cluster_4},
    {64,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 8},
     fwd_small_costs::d64_groups_1x2_keys_64_stages_4_cluster_8},
    {64,
     {.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 8, .cluster = 16},
     fwd_small_costs::d64_groups_1x1_keys_64_stages_8_cluster_16},
    {128,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 3, .cluster = 1},
     fwd_small_costs::d128_groups_1x2_keys_64_stages_3_cluster_1},
    {128,
     {.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 3, .cluster = 1},
     fwd_small_costs::d128_groups_1x1_keys_64_stages_3_cluster_1,
     2},
    {128,
     {.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 3, .cluster = 1, .paired = true},
     fwd_small_costs::d128_groups_1x1_keys_64_stages_3_paired,
     2},
    {128,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 2, .cluster = 4},
     fwd_small_costs::d128_groups_1x2_keys_64_stages_2_cluster_4},
    {128,
     {.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 2, .cluster = 8},
     fwd_small_costs::d128_groups_1x2_keys_64_stages_2_cluster_8},
    {128,
     {.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 4, .cluster = 16},
     fwd_small_costs::d128_groups_1x1_keys_64_stages_4_cluster_16},
};

static_assert(sizeof(device::sm90_fwd_small::SharedStorage<Variant{.dim = 64}, candidates[1].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[1].config));
static_assert(sizeof(device::sm90_fwd_small::SharedStorage<Variant{.dim = 64}, candidates[4].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[4].config));
static_assert(sizeof(device::sm90_fwd_small::SharedStorage<Variant{.dim = 64}, candidates[8].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[8].config));
static_assert(sizeof(device::sm90_fwd_small::SharedStorage<Variant{.dim = 128}, candidates[13].config>) ==
              shared_bytes(Variant{.dim = 128}, candidates[13].config));

Variant variant_of(const Problem& problem) {
  return {static_cast<device::Dtype>(problem.dtype), static_cast<int>(problem.dim_qk), problem.causal != Causal::none,
          problem.has(ATTUNE_KV_READY)};
}

// Heads of a group whose rows share a tile: all of them or one, whichever fills tiles better.
int64_t pack_of(const Problem& problem) {
  const int64_t group = problem.group();
  const bool divides = rows_per_warpgroup % group == 0;
  const int64_t packed = ceil_div<int64_t>(problem.seq_q * group, rows_per_warpgroup) * problem.heads_kv;
  const int64_t apart = ceil_div<int64_t>(problem.seq_q, rows_per_warpgroup) * problem.heads_q;
  return divides && packed < apart ? group : 1;
}

// How the tiles of a problem are shared out.
struct Layout {
  int64_t pack, tiles_m, packs;  // packs of all sequences, of `pack` heads each

  Layout(const Problem& problem, const Config& config)
      : pack(pack_of(problem)),
        tiles_m(ceil_div<int64_t>(problem.seq_q * pack, tile_rows(config))),
        packs(problem.batch * problem.heads_q / pack) {}
};

// Blocks that the rows of a tile see.
int64_t blocks_of(const Problem& problem, const Config& config, const Layout& layout, int64_t tile) {
  const int64_t last_position = std::min(((tile + 1) * tile_rows(config) - 1) / layout.pack, problem.seq_q - 1);
  return ceil_div<int64_t>(band_of(problem).end(last_position), config.block_n);
}

bool takes(const Problem& problem, const Config& config, const gpu::DeviceProperties& device) {
  if (!legal(variant_of(problem), config, device.smem_per_block_bytes)) return false;
  if (device.clusters_of(config.cluster) == 0) return false;
  const Layout layout(problem, config);
  if (config.paired && problem.causal == Causal::none) return false;
  return config.stages > 1 ||
         blocks_of(problem, config, layout, layout.tiles_m - 1) <= int64_t{config.key_groups} * config.cluster;
}

// Rounds of the tile that comes i-th, if the longest come first.
double rounds_of(const Problem& problem, const Config& config, const Layout& layout, int64_t i) {
  const int64_t blocks = blocks_of(problem, config, layout, layout.tiles_m - 1 - i / layout.packs);
  return static_cast<double>(ceil_div<int64_t>(blocks, int64_t{config.key_groups} * config.cluster));
}

// Clusters run in waves, the longest tiles in the first. Two CTAs on an SM take turns at what one leaves idle.
double predicted_waves_us(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  const Config& config = candidate.config;
  const FwdSmallCost& cost = candidate.cost;
  const Layout layout(problem, config);
  const int64_t tiles = layout.tiles_m * layout.packs;
  const int64_t per_wave = int64_t{candidate.ctas_per_sm} * device.clusters_of(config.cluster);
  const bool crowded = candidate.ctas_per_sm > 1 && tiles > device.clusters_of(config.cluster);
  double us = 0;
  for (int64_t first = 0; first < tiles; first += per_wave)
    us += cost.tile_us + rounds_of(problem, config, layout, first) * cost.round_us *
                             (crowded ? fwd_small_costs::slower_beside_another : 1);
  return us;
}

// Two CTAs on an SM: the longest tile is held up by the short one beside it, or all of them by their number.
double predicted_pairs_us(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  using namespace fwd_small_costs;
  const FwdSmallCost& cost = candidate.cost;
  const Layout layout(problem, candidate.config);
  const int64_t tiles = layout.tiles_m * layout.packs;
  double all = 0;
  for (int64_t tile = 0; tile < layout.tiles_m; ++tile)
    all += static_cast<double>(layout.packs) *
           (crowded_start * cost.tile_us +
            crowded_round * cost.round_us * rounds_of(problem, candidate.config, layout, tile * layout.packs));
  const double longest = rounds_of(problem, candidate.config, layout, 0);
  const double beside = tiles > device.sm_count ? rounds_of(problem, candidate.config, layout, tiles - 1) : 0;
  return std::max(cost.tile_us + (longest + held_up * beside) * cost.round_us,
                  all / static_cast<double>(device.sm_count));
}

double predicted_us(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  const double us = candidate.config.paired ? predicted_pairs_us(problem, candidate, device)
                                            : predicted_waves_us(problem, candidate, device);
  // With few rows reading keys may take longer than computing with them.
  if (problem.seq_q > rows_per_warpgroup) return us;
  const double bytes = 4.0 * static_cast<double>(problem.batch * problem.heads_q * problem.seq_k * problem.dim_qk);
  return std::max(us, bytes / fwd_small_costs::read_bytes_per_us);
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

  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    std::vector<Configuration> list;
    for (const Way& way : best_first(problem, device))
      list.push_back({text_of(way.candidate->config), way.predicted_seconds});
    return list;
  }

  gpu::Choice choice_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    const Way best = best_first(problem, device).at(0);
    return {best.predicted_seconds,
            [problem, device, config = best.candidate->config] { return recipe(problem, device, config); }};
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Candidate& candidate : candidates)
      if (candidate.dim == problem.dim_qk && takes(problem, candidate.config, device) &&
          text_of(candidate.config) == text)
        return recipe(problem, device, candidate.config);
    fail(ATTUNE_INVALID_ARGUMENT, "sm90/fwd_small has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  struct Way {
    const Candidate* candidate;
    double predicted_seconds;
  };

  static std::vector<Way> best_first(const Problem& problem, const gpu::DeviceProperties& device) {
    std::vector<Way> ways;
    for (const Candidate& candidate : candidates)
      if (candidate.dim == problem.dim_qk && takes(problem, candidate.config, device))
        ways.push_back({&candidate, predicted_us(problem, candidate, device) * 1e-6});
    std::ranges::sort(ways, {}, &Way::predicted_seconds);
    return ways;
  }

  static gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device, const Config& config) {
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
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, out), ATTUNE_OFFSET_FACT(Params, keys),
                   ATTUNE_OFFSET_FACT(Params, pack), ATTUNE_OFFSET_FACT(Params, all_packs)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    const Layout layout(problem, config);
    Params params{};
    params.out = outputs_of(problem);
    params.keys = keys_of(problem);
    params.scale_log2 = scale_log2_of(problem);
    params.tiles_m = static_cast<int32_t>(layout.tiles_m);
    params.sm_count = device.sm_count;
    params.pack = divisor_of(static_cast<uint32_t>(layout.pack));
    params.heads_per_pack = divisor_of(static_cast<uint32_t>(problem.group() / layout.pack));
    params.packs = divisor_of(static_cast<uint32_t>(problem.heads_q / layout.pack));
    params.all_packs = divisor_of(static_cast<uint32_t>(layout.packs));
    Maps maps = maps_of(problem, tile_rows(config), config.block_n);
    maps.q = packed_q(problem, layout.pack, tile_rows(config));
    const auto fill = [maps](Params& out, const Operands& operands, const gpu::Driver& driver) {
      set_pointers(out, maps, operands, driver);
    };
    const auto tiles_m = static_cast<uint32_t>(layout.tiles_m), packs = static_cast<uint32_t>(layout.packs);
    const auto cluster = static_cast<uint32_t>(config.cluster), batch = static_cast<uint32_t>(problem.batch);
    const jit::Dim3 grid =
        config.paired ? jit::Dim3{tiles_m * packs, 1, 1} : jit::Dim3{tiles_m * cluster, packs / batch, batch};
    gpu::Step step = gpu::make_step(unit, grid, params, fill);
    step.programmatic = problem.has(ATTUNE_OVERLAP);
    return {{std::move(step)}, 0};
  }

  // One panel of a tile: the rows of `pack` heads beside each other, position by position.
  static gpu::TensorMapSpec packed_q(const Problem& problem, int64_t pack, int rows) {
    const auto extent = [](int64_t x) { return static_cast<uint64_t>(x); };
    gpu::TensorMapSpec spec;
    spec.dims = {extent(problem.dim_qk), extent(pack), extent(problem.seq_q), extent(problem.heads_q / pack),
                 extent(problem.batch)};
    spec.stride_bytes = {extent(problem.q.head) * 2, extent(problem.q.row) * 2, extent(problem.q.head * pack) * 2,
                         extent(problem.q.batch) * 2};
    spec.box = {device::panel_columns, static_cast<uint32_t>(pack), static_cast<uint32_t>(rows / pack), 1, 1};
    spec.rank = 5;
    spec.dtype = problem.dtype;
    spec.swizzle = gpu::CU_TENSOR_MAP_SWIZZLE_128B;
    return spec;
  }
};
const Registration<ForwardSmall> registration;

}  // namespace
}  // namespace attune::sm90
