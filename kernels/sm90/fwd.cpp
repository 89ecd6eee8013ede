// The host's side of kernel "sm90/fwd": what it takes, how tiles are shared out, and which configuration is best.
#include "kernels/sm90/fwd.hpp"

#include <algorithm>

#include "gpu/kernel.hpp"
#include "jit/fields.hpp"
#include "kernels/attention/visibility.hpp"
#include "kernels/sm90/fwd_cost.hpp"
#include "kernels/sm90/host.hpp"

namespace attune::device::sm90_fwd {

constexpr std::string_view initializer_of(Turns turns) {
  return turns == Turns::none ? "Turns::none" : "Turns::products";
}

}  // namespace attune::device::sm90_fwd

namespace attune::jit {

using device::sm90_fwd::Config;
using device::sm90_fwd::Variant;
template <>
inline constexpr auto fields<Variant> =
    list(ATTUNE_FIELD(Variant, dtype), ATTUNE_FIELD(Variant, dim), ATTUNE_FIELD(Variant, mask));
template <>
inline constexpr auto fields<Config> =
    list(ATTUNE_FIELD(Config, warpgroups), ATTUNE_FIELD(Config, block_n), ATTUNE_FIELD(Config, stages_k),
         ATTUNE_FIELD(Config, stages_v), ATTUNE_FIELD(Config, q_slots), ATTUNE_FIELD(Config, consumer_registers),
         ATTUNE_FIELD(Config, producer_registers), ATTUNE_FIELD(Config, turns), ATTUNE_FIELD(Config, early_waits));

}  // namespace attune::jit

namespace attune::sm90 {
namespace {

using device::divisor_of;
using device::sm90_fwd::Config;
using device::sm90_fwd::Params;
using device::sm90_fwd::Turns;
using device::sm90_fwd::Variant;

struct Candidate {
  int dim;
  Config config;
  fwd_cost::Costs costs;
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
    {64, config_of(3, 128, 3, 3, 2, Turns::products), fwd_cost::d64_w3_n128},
    {64, config_of(4, 64, 4, 4, 2, Turns::products, true), fwd_cost::d64_w4_n64_in_turns},
    {64, config_of(4, 64, 4, 4, 2, Turns::none), fwd_cost::d64_w4_n64},
    {64, config_of(2, 64, 4, 4, 2, Turns::none), fwd_cost::d64_w2_n64},
    {64, config_of(1, 64, 8, 8, 2, Turns::none), fwd_cost::d64_w1_n64},
    {128, config_of(2, 128, 3, 2, 2, Turns::products), fwd_cost::d128_w2_n128},
    {128, config_of(3, 64, 3, 3, 2, Turns::none), fwd_cost::d128_w3_n64},
    {128, config_of(1, 64, 5, 4, 2, Turns::none), fwd_cost::d128_w1_n64},
    {256, config_of(2, 64, 3, 2, 1, Turns::none), fwd_cost::d256_w2_n64},
};

static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 64}, candidates[0].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[0].config));
static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 256}, candidates[8].config>) ==
              shared_bytes(Variant{.dim = 256}, candidates[8].config));

Variant variant_of(const Problem& problem) {
  return {static_cast<device::Dtype>(problem.dtype), static_cast<int>(problem.dim_qk), mask_of(problem)};
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
  const device::Band<int32_t> band = band_of(problem);
  const double block_us =
      mask_of(problem) == device::Mask::full ? candidate.costs.full_block_us : candidate.costs.causal_block_us;
  const int rows = tile_rows(candidate.config), last_row = static_cast<int>(problem.seq_q) - 1;
  std::vector<double> costs(static_cast<size_t>(tiles_m));
  for (size_t m = 0; m < costs.size(); ++m) {
    const int first = static_cast<int>(m) * rows;
    const int blocks =
        device::key_blocks(band, first, std::min(first + rows - 1, last_row), candidate.config.block_n).count();
    costs[m] = candidate.costs.tile_us + std::max(blocks, 1) * block_us;
  }
  return costs;
}

// The busiest CTA's time if pairs are walked in sections of this width. Tiles of equal cost follow each other, so they
// are added to all the CTAs that they reach in one go.
double makespan_us(const Schedule& schedule, const std::vector<double>& costs, int64_t section) {
  std::vector<double> loads(static_cast<size_t>(schedule.grid));
  bool from_right = false;
  int64_t column = 0;  // of the row of the schedule, which CTAs take in turn from the left and from the right
  for (int64_t first = 0; first < schedule.pairs; first += section) {
    const int64_t width = std::min(section, schedule.pairs - first);
    for (int64_t m = schedule.tiles_m - 1; m >= 0; --m) {
      const double cost = costs[static_cast<size_t>(m)];
      for (int64_t left = width; left > 0;) {
        const int64_t count = std::min(left, schedule.grid - column);
        double* begin = loads.data() + (from_right ? schedule.grid - column - count : column);
        for (int64_t i = 0; i < count; ++i) begin[i] += cost;
        left -= count;
        column += count;
        if (column == schedule.grid) column = 0, from_right = !from_right;
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
  if (mask_of(problem) == device::Mask::full) {
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
  const int64_t pair_bytes = band_of(problem).keys * (problem.dim_qk + problem.dim_v) * 2 / problem.group();
  const auto penalty = [&](int64_t width) { return width * pair_bytes > device.l2_bytes ? fwd_cost::beyond_l2 : 1.0; };
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

device::sm90::TileOrder order_of(const Problem& problem, const Schedule& schedule) {
  const int64_t rest = schedule.pairs % schedule.section;
  device::sm90::TileOrder order{};
  order.heads = divisor_of(static_cast<uint32_t>(problem.heads_q));
  order.section_tiles = divisor_of(static_cast<uint32_t>(schedule.section * schedule.tiles_m));
  order.section = divisor_of(static_cast<uint32_t>(schedule.section));
  order.last_section = divisor_of(static_cast<uint32_t>(rest == 0 ? schedule.section : rest));
  order.whole_sections = static_cast<int32_t>(schedule.pairs / schedule.section);
  order.tiles_m = static_cast<int32_t>(schedule.tiles_m);
  order.tiles = static_cast<int32_t>(schedule.tiles_m * schedule.pairs);
  return order;
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

  std::vector<gpu::Choice> choices(const Problem& problem, const gpu::DeviceProperties& device) const override {
    const Variant variant = variant_of(problem);
    std::vector<gpu::Choice> list;
    for (const Candidate& candidate : candidates) {
      if (candidate.dim != problem.dim_qk || !legal(variant, candidate.config, device.smem_per_block_bytes)) continue;
      const Schedule schedule = schedule_for(problem, candidate, device);
      list.push_back({(fwd_cost::launch_us + schedule.makespan_us) * 1e-6,
                      [&candidate] { return jit::text_of(candidate.config); },
                      [problem, &candidate, schedule] { return recipe(problem, candidate.config, schedule); }});
    }
    std::ranges::sort(list, {}, &gpu::Choice::predicted_seconds);
    return list;
  }

 private:
  static gpu::Recipe recipe(const Problem& problem, const Config& config, const Schedule& schedule) {
    const Variant variant = variant_of(problem);
    jit::DeviceUnit unit;
    unit.name = "sm90/fwd";
    unit.file = "kernels/sm90/fwd.cuh";
    unit.scope = "attune::device::sm90_fwd";
    unit.variant = jit::text_of(variant);
    unit.config = jit::text_of(config);
    unit.threads = static_cast<uint32_t>(threads(config));
    unit.role_registers = static_cast<uint32_t>(role_registers(config));
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, call.o), ATTUNE_OFFSET_FACT(Params, call.band),
                   ATTUNE_OFFSET_FACT(Params, order.whole_sections), ATTUNE_OFFSET_FACT(Params, group)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    params.call = call_of(problem);
    params.order = order_of(problem, schedule);
    params.group = static_cast<int32_t>(problem.group());

    const Maps maps = maps_of(problem, device::sm90::rows_per_warpgroup, config.block_n);
    const auto fill = [maps](Params& out, const Operands& operands, const gpu::Driver& driver) {
      set_pointers(out.call, maps, operands, driver);
    };
    return {{gpu::make_step(unit, {static_cast<uint32_t>(schedule.grid), 1, 1}, params, fill)}, 0};
  }
};
const Registration<Forward> registration;

}  // namespace
}  // namespace attune::sm90
