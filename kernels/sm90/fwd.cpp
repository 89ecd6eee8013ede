// The host's side of kernel "sm90/fwd": what it takes, how tiles are shared out, and which configuration is best.
#include "kernels/sm90/fwd.cuh"

#include <algorithm>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/sm90/fwd_cost.hpp"
#include "kernels/sm90/host.hpp"

namespace attune::device::sm90_fwd {

constexpr std::string_view initializer_of(Turns turns) {
  return turns == Turns::none ? "Turns::none" : "Turns::products";
}

}  // namespace attune::device::sm90_fwd

namespace attune::jit {

using FwdVariant = device::sm90_fwd::Variant;
using FwdConfig = device::sm90_fwd::Config;
template <>
inline constexpr auto fields<FwdVariant> =
    list(ATTUNE_FIELD(FwdVariant, dtype), ATTUNE_FIELD(FwdVariant, dim), ATTUNE_FIELD(FwdVariant, causal));
template <>
inline constexpr auto fields<FwdConfig> = list(
    ATTUNE_FIELD(FwdConfig, warpgroups), ATTUNE_FIELD(FwdConfig, block_n), ATTUNE_FIELD(FwdConfig, stages_k),
    ATTUNE_FIELD(FwdConfig, stages_v), ATTUNE_FIELD(FwdConfig, q_slots), ATTUNE_FIELD(FwdConfig, consumer_registers),
    ATTUNE_FIELD(FwdConfig, producer_registers), ATTUNE_FIELD(FwdConfig, turns), ATTUNE_FIELD(FwdConfig, early_waits));

}  // namespace attune::jit

namespace attune::sm90 {
namespace {

using device::divisor_of;
using device::sm90_fwd::Config;
using device::sm90_fwd::Params;
using device::sm90_fwd::Turns;
using device::sm90_fwd::Variant;
using jit::text_of;

struct Candidate {
  int dim;
  Config config;
  FwdCost cost;
};

constexpr Config config_of(int warpgroups, int block_n, int stages_k, int stages_v, int q_slots, Turns turns,
                           bool early_waits = false) {
  // Consumers take what the register file has beyond the producer's share.
  constexpr int consumer[] = {0, 240, 240, 160, 112}, producer[] = {0, 24, 24, 32, 32};
  return {.warpgroups = warpgroups,
          .block_n = block_n,
          .stages_k = stages_k,
          .stages_v = stages_v,
          .q_slots = q_slots,
          .consumer_registers = consumer[warpgroups],
          .producer_registers = producer[warpgroups],
          .turns = turns,
          .early_waits = early_waits};
}

constexpr Candidate candidates[] = {
    {64, config_of(3, 128, 3, 3, 2, Turns::products), fwd_costs::d64_192_rows_128_keys},
    {64, config_of(4, 64, 4, 4, 2, Turns::products, true), fwd_costs::d64_256_rows_turns},
    {64, config_of(4, 64, 4, 4, 2, Turns::none), fwd_costs::d64_256_rows},
    {64, config_of(2, 64, 4, 4, 2, Turns::none), fwd_costs::d64_128_rows},
    {64, config_of(1, 64, 8, 8, 2, Turns::none), fwd_costs::d64_64_rows},
    {128, config_of(2, 128, 3, 2, 2, Turns::products), fwd_costs::d128_128_rows_128_keys},
    {128, config_of(3, 64, 3, 3, 2, Turns::none), fwd_costs::d128_192_rows},
    {128, config_of(1, 64, 5, 4, 2, Turns::none), fwd_costs::d128_64_rows},
    {256, config_of(2, 64, 3, 2, 1, Turns::none), fwd_costs::d256_128_rows},
};

static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 64}, candidates[0].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[0].config));
static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 256}, candidates[8].config>) ==
              shared_bytes(Variant{.dim = 256}, candidates[8].config));

Variant variant_of(const Problem& problem) {
  return {static_cast<device::Dtype>(problem.dtype), static_cast<int>(problem.dim_qk), problem.causal != Causal::none};
}

// How tiles are shared out. Each CTA takes every grid-th tile of a fixed order, alternately from the left and from the
// right.
struct Schedule {
  int64_t tiles_m = 0, pairs = 0;  // tiles of one (batch, head) pair; pairs
  int64_t grid = 0;
  int64_t section = 1;  // pairs walked together, longest tiles first
  double makespan_us = 0;
};

// Costs of the tiles of one pair, first rows first.
std::vector<double> tile_costs(const Problem& problem, const Candidate& candidate, int64_t tiles_m) {
  const int64_t rows = tile_rows(candidate.config);
  const device::Band<int64_t> band = band_of(problem);
  const FwdCost& cost = candidate.cost;
  const double block_us = problem.causal == Causal::none ? cost.full_block_us : cost.causal_block_us;
  std::vector<double> costs(static_cast<size_t>(tiles_m));
  for (int64_t m = 0; m < tiles_m; ++m) {
    const int64_t seen = band.end(std::min((m + 1) * rows, problem.seq_q) - 1);
    const int64_t blocks = std::max<int64_t>(1, device::ceil_div<int64_t>(seen, candidate.config.block_n));
    costs[static_cast<size_t>(m)] = cost.tile_us + static_cast<double>(blocks) * block_us;
  }
  return costs;
}

// The busiest CTA's time if pairs are walked in sections of this width.
double makespan_us(const Schedule& schedule, const std::vector<double>& costs, int64_t section) {
  std::vector<double> loads(static_cast<size_t>(schedule.grid));
  size_t cta = 0;  // walks to the right, then back: without a division, for there are many tiles
  bool rightwards = true;
  for (int64_t first = 0; first < schedule.pairs; first += section) {
    const int64_t width = std::min(section, schedule.pairs - first);
    for (int64_t m = schedule.tiles_m - 1; m >= 0; --m) {
      for (int64_t pair = 0; pair < width; ++pair) {
        loads[cta] += costs[static_cast<size_t>(m)];
        if (rightwards ? cta + 1 == loads.size() : cta == 0)
          rightwards = !rightwards;
        else
          cta = rightwards ? cta + 1 : cta - 1;
      }
    }
  }
  return *std::ranges::max_element(loads);
}

Schedule schedule_for(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  Schedule schedule;
  schedule.tiles_m = device::ceil_div<int64_t>(problem.seq_q, tile_rows(candidate.config));
  schedule.pairs = problem.batch * problem.heads_q;
  const int64_t tiles = schedule.tiles_m * schedule.pairs;
  schedule.grid = std::min<int64_t>(tiles, device.sm_count);
  const std::vector<double> costs = tile_costs(problem, candidate, schedule.tiles_m);
  if (problem.causal == Causal::none) {
    schedule.makespan_us = static_cast<double>(device::ceil_div(tiles, schedule.grid)) * costs[0];
    return schedule;
  }

  // Sections whose tiles fill pairs of rows of the schedule balance best; small ones keep K and V in the L2. Past some
  // size every choice is balanced, and trying them would cost more than it gains.
  constexpr int64_t most_tiles_to_try = 1 << 15;
  std::vector<int64_t> widths = {schedule.pairs};
  for (int64_t rows = 2; rows <= 16; rows += 2) {
    const int64_t width = rows * schedule.grid / schedule.tiles_m;
    for (int64_t near : {width, width + 1})
      if (near >= 1 && near < schedule.pairs) widths.push_back(near);
  }
  const int64_t pair_bytes = keys_in_use(problem) * (problem.dim_qk + problem.dim_v) * 2 / problem.group();
  const auto penalty = [&](int64_t width) { return width * pair_bytes > device.l2_bytes ? 1.02 : 1.0; };
  schedule.makespan_us = 1e30;
  for (int64_t width : widths) {
    const double us = makespan_us(schedule, costs, width) * penalty(width);
    if (us < schedule.makespan_us * 0.9995) {
      schedule.makespan_us = us;
      schedule.section = width;
    }
    if (tiles > most_tiles_to_try) break;
  }
  return schedule;
}

class Forward final : public gpu::GpuKernel {
 public:
  std::string_view name() const override { return "sm90/fwd"; }
  int64_t pointer_alignment(const Problem&) const override { return gpu::tensor_map_alignment; }

  std::string refusal_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    if (problem.dim_qk != 64 && problem.dim_qk != 128 && problem.dim_qk != 256)
      return fmt::format("head dim {} is not 64, 128 or 256", problem.dim_qk);
    return common_refusal(problem, device);
  }

  std::vector<Configuration> configurations_on(const Problem& problem,
                                               const gpu::DeviceProperties& device) const override {
    std::vector<Configuration> list;
    for (const Way& way : best_first(problem, device))
      list.push_back({text_of(way.candidate->config), way.predicted_seconds()});
    return list;
  }

  gpu::Choice choice_on(const Problem& problem, const gpu::DeviceProperties& device) const override {
    const Way best = best_first(problem, device).at(0);
    return {best.predicted_seconds(), [problem, best] { return recipe(problem, best); }};
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Candidate& candidate : candidates)
      if (takes(problem, candidate, device) && text_of(candidate.config) == text)
        return recipe(problem, {&candidate, schedule_for(problem, candidate, device)});
    fail(ATTUNE_INVALID_ARGUMENT, "sm90/fwd has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  struct Way {
    const Candidate* candidate;
    Schedule schedule;

    double predicted_seconds() const { return (fwd_launch_us + schedule.makespan_us) * 1e-6; }
  };

  static bool takes(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
    return candidate.dim == problem.dim_qk && legal(variant_of(problem), candidate.config, device.smem_per_block_bytes);
  }

  static std::vector<Way> best_first(const Problem& problem, const gpu::DeviceProperties& device) {
    std::vector<Way> ways;
    for (const Candidate& candidate : candidates)
      if (takes(problem, candidate, device)) ways.push_back({&candidate, schedule_for(problem, candidate, device)});
    std::ranges::sort(ways, {}, [](const Way& way) { return way.schedule.makespan_us; });
    return ways;
  }

  static gpu::Recipe recipe(const Problem& problem, const Way& way) {
    const Variant variant = variant_of(problem);
    const Config& config = way.candidate->config;
    const Schedule& schedule = way.schedule;
    jit::DeviceUnit unit;
    unit.name = "sm90/fwd";
    unit.file = "kernels/sm90/fwd.cuh";
    unit.scope = "attune::device::sm90_fwd";
    unit.variant = text_of(variant);
    unit.config = text_of(config);
    unit.threads = static_cast<uint32_t>(threads(config));
    unit.role_registers = static_cast<uint32_t>(role_registers(config));
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, out), ATTUNE_OFFSET_FACT(Params, keys),
                   ATTUNE_OFFSET_FACT(Params, heads), ATTUNE_OFFSET_FACT(Params, whole_sections)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    params.out = outputs_of(problem);
    params.keys = keys_of(problem);
    params.scale_log2 = scale_log2_of(problem);
    params.group = static_cast<int32_t>(problem.group());
    params.tiles_m = static_cast<int32_t>(schedule.tiles_m);
    params.tiles = static_cast<int32_t>(schedule.tiles_m * schedule.pairs);
    const int64_t whole = schedule.pairs / schedule.section, rest = schedule.pairs % schedule.section;
    params.heads = divisor_of(static_cast<uint32_t>(problem.heads_q));
    params.section = divisor_of(static_cast<uint32_t>(schedule.section));
    params.section_tiles = divisor_of(static_cast<uint32_t>(schedule.section * schedule.tiles_m));
    params.last_section = divisor_of(static_cast<uint32_t>(rest == 0 ? schedule.section : rest));
    params.whole_sections = static_cast<int32_t>(whole);

    const Maps maps = maps_of(problem, device::sm90_fwd::rows_per_warpgroup, config.block_n);
    const auto fill = [maps](Params& out, const Operands& operands, const gpu::Driver& driver) {
      set_pointers(out, maps, operands, driver);
    };
    return {{gpu::make_step(unit, {static_cast<uint32_t>(schedule.grid), 1, 1}, params, fill)}, 0};
  }
};
const Registration<Forward> registration;

}  // namespace
}  // namespace attune::sm90
