// The host's side of kernel "sm90/fwd": what it takes, how tiles are shared out, and which configuration is best.
#include "kernels/sm90/fwd.cuh"

#include <algorithm>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "kernels/sm90/host.hpp"

namespace attune::sm90 {
namespace {

using device::divisor_of;
using device::sm90_fwd::Config;
using device::sm90_fwd::Params;
using device::sm90_fwd::Turns;
using device::sm90_fwd::Variant;

// A configuration and what it costs on an H200: microseconds for one block of a tile, and for a tile whatever its
// length (first block, store, the way to the next). Fitted to measured runs; see docs/notebook.md.
struct Candidate {
  int dim;
  Config config;
  double full_block_us, causal_block_us, tile_us;
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
    {64, config_of(3, 128, 3, 3, 2, Turns::products), 1.33, 1.44, 1.4},
    {64, config_of(4, 64, 4, 4, 2, Turns::products, true), 0.872, 0.90, 1.9},
    {64, config_of(4, 64, 4, 4, 2, Turns::none), 1.01, 0.92, 1.1},
    {64, config_of(2, 64, 4, 4, 2, Turns::none), 0.55, 0.555, 1.6},
    {64, config_of(1, 64, 8, 8, 2, Turns::none), 0.415, 0.42, 0.8},
    {128, config_of(2, 128, 3, 2, 2, Turns::products), 1.45, 1.53, 1.5},
    {128, config_of(3, 64, 3, 3, 2, Turns::none), 1.14, 1.13, 2.2},
    {128, config_of(1, 64, 5, 4, 2, Turns::none), 0.57, 0.60, 0.8},
    {256, config_of(2, 64, 3, 2, 1, Turns::none), 1.40, 1.42, 2.9},
};

static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 64}, candidates[0].config>) ==
              shared_bytes(Variant{.dim = 64}, candidates[0].config));
static_assert(sizeof(device::sm90_fwd::SharedStorage<Variant{.dim = 256}, candidates[8].config>) ==
              shared_bytes(Variant{.dim = 256}, candidates[8].config));

Variant variant_of(const Problem& problem) {
  return {static_cast<device::Dtype>(problem.dtype), static_cast<int>(problem.dim_qk), problem.causal != Causal::none};
}

std::string text_of(const Variant& variant) {
  return jit::Initializer().add("dtype", variant.dtype).add("dim", variant.dim).add("causal", variant.causal).text();
}

std::string text_of(const Config& config) {
  return jit::Initializer()
      .add("warpgroups", config.warpgroups)
      .add("block_n", config.block_n)
      .add("stages_k", config.stages_k)
      .add("stages_v", config.stages_v)
      .add("q_slots", config.q_slots)
      .add("consumer_registers", config.consumer_registers)
      .add("producer_registers", config.producer_registers)
      .add_text("turns", config.turns == Turns::none ? "Turns::none" : "Turns::products")
      .add("early_waits", config.early_waits)
      .text();
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
  const int64_t rows = tile_rows(candidate.config), keys = keys_in_use(problem);
  const bool causal = problem.causal != Causal::none;
  std::vector<double> costs(static_cast<size_t>(tiles_m));
  for (int64_t m = 0; m < tiles_m; ++m) {
    const int64_t last = std::min((m + 1) * rows, problem.seq_q) + diagonal_of(problem);
    const int64_t visible = causal ? std::clamp<int64_t>(last, 1, keys) : keys;
    const int64_t blocks = device::ceil_div<int64_t>(visible, candidate.config.block_n);
    costs[static_cast<size_t>(m)] =
        candidate.tile_us +
        static_cast<double>(blocks) * (causal ? candidate.causal_block_us : candidate.full_block_us);
  }
  return costs;
}

// The busiest CTA's time if pairs are walked in sections of this width.
double makespan_us(const Schedule& schedule, const std::vector<double>& costs, int64_t section) {
  std::vector<double> loads(static_cast<size_t>(schedule.grid));
  int64_t index = 0;
  for (int64_t first = 0; first < schedule.pairs; first += section) {
    const int64_t width = std::min(section, schedule.pairs - first);
    for (int64_t m = schedule.tiles_m - 1; m >= 0; --m) {
      for (int64_t pair = 0; pair < width; ++pair, ++index) {
        const int64_t row = index / schedule.grid, column = index % schedule.grid;
        loads[static_cast<size_t>(row % 2 == 0 ? column : schedule.grid - 1 - column)] += costs[static_cast<size_t>(m)];
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
    constexpr double launch_us = 2.4;  // with the first loads and the last stores, which nothing hides
    std::vector<Configuration> list;
    for (const Choice& choice : best_first(problem, device))
      list.push_back({text_of(choice.candidate->config), (launch_us + choice.schedule.makespan_us) * 1e-6});
    return list;
  }

  gpu::Recipe recipe(const Problem& problem, const gpu::DeviceProperties& device,
                     std::string_view text) const override {
    for (const Choice& choice : best_first(problem, device))
      if (text_of(choice.candidate->config) == text) return recipe(problem, choice.candidate->config, choice.schedule);
    fail(ATTUNE_INVALID_ARGUMENT, "sm90/fwd has no configuration '{}' for {}", text, to_string(problem));
  }

 private:
  struct Choice {
    const Candidate* candidate;
    Schedule schedule;
  };

  static std::vector<Choice> best_first(const Problem& problem, const gpu::DeviceProperties& device) {
    std::vector<Choice> choices;
    for (const Candidate& candidate : candidates)
      if (candidate.dim == problem.dim_qk && legal(variant_of(problem), candidate.config, device.smem_per_block_bytes))
        choices.push_back({&candidate, schedule_for(problem, candidate, device)});
    std::ranges::sort(choices, {}, [](const Choice& choice) { return choice.schedule.makespan_us; });
    return choices;
  }

  static gpu::Recipe recipe(const Problem& problem, const Config& config, const Schedule& schedule) {
    const Variant variant = variant_of(problem);
    jit::DeviceUnit unit;
    unit.name = "sm90/fwd";
    unit.file = "kernels/sm90/fwd.cuh";
    unit.scope = "attune::device::sm90_fwd";
    unit.variant = text_of(variant);
    unit.config = text_of(config);
    unit.threads = static_cast<uint32_t>(threads(config));
    unit.role_registers = static_cast<uint32_t>(role_registers(config));
    unit.smem_bytes = static_cast<uint32_t>(shared_bytes(variant, config));
    unit.layout = {ATTUNE_SIZE_FACT(Params), ATTUNE_OFFSET_FACT(Params, o), ATTUNE_OFFSET_FACT(Params, seq_q),
                   ATTUNE_OFFSET_FACT(Params, heads), ATTUNE_OFFSET_FACT(Params, whole_sections)};
    unit.layout.push_back({"sizeof(SharedStorage<variant, config>)", unit.smem_bytes});

    Params params{};
    set_constants(params, problem);
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
