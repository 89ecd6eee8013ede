#include "kernels/sm90/fwd_ranged_schedule.hpp"

#include <algorithm>

#include "kernels/sm90/fwd_ranged_cost.hpp"

namespace attune::sm90::ranged {
namespace {

using device::sm90_fwd_ranged::Turns;

constexpr Config config_of(int warpgroups, int block_n, int stages_k, int stages_v, int q_slots, Turns turns,
                           int value_parts = 1) {
  // The producer's lanes plan tiles; consumers take what the register file has beyond that.
  constexpr int consumer[] = {0, 240, 232, 152}, producer[] = {0, 40, 40, 56};
  return {.warpgroups = warpgroups,
          .value_parts = value_parts,
          .block_n = block_n,
          .stages_k = stages_k,
          .stages_v = stages_v,
          .q_slots = q_slots,
          .consumer_registers = consumer[warpgroups],
          .producer_registers = producer[warpgroups],
          .turns = turns};
}

// Two CTAs on an SM, so that one's first loads and last stores lie under the other's products.
constexpr Config pair_of(int block_n, int stages, int q_slots) {
  Config config = config_of(1, block_n, stages, stages, q_slots, Turns::none);
  config.consumer_registers = 208;
  config.ctas_per_sm = 2;
  return config;
}

// For head dims of up to so many panels of 64 columns each. The terms of scores take shared memory, so stages are
// fewer.
struct Candidate {
  int panels_qk, panels_v;
  bool for_terms;
  Config config;
  RangedCost cost;
};

using namespace ranged_costs;
constexpr Candidate candidates[] = {
    {1, 1, false, config_of(2, 128, 3, 3, 2, Turns::none), d64_128_rows_128_keys},
    {1, 1, false, config_of(3, 96, 3, 3, 2, Turns::none), d64_192_rows_96_keys},
    {1, 1, false, config_of(3, 64, 4, 4, 2, Turns::none), d64_192_rows_64_keys},
    {1, 1, false, config_of(2, 64, 4, 4, 2, Turns::none), d64_128_rows_64_keys},
    {1, 1, false, pair_of(128, 2, 2), d64_pair_128_keys},
    {1, 1, false, pair_of(64, 3, 2), d64_pair_64_keys},
    {2, 2, false, config_of(2, 128, 3, 2, 2, Turns::products), d128_128_rows_128_keys},
    {2, 2, false, config_of(3, 64, 3, 3, 2, Turns::none), d128_192_rows_64_keys},
    {2, 2, false, config_of(2, 64, 4, 4, 2, Turns::none), d128_128_rows_64_keys},
    {2, 2, false, pair_of(64, 2, 2), d128_pair_64_keys},
    {3, 2, false, config_of(2, 128, 2, 2, 1, Turns::none), d192_128_rows_128_keys},
    {3, 2, false, config_of(2, 112, 2, 2, 1, Turns::none), d192_128_rows_112_keys},
    {3, 2, false, config_of(1, 64, 3, 3, 1, Turns::none), d192_64_rows},
    {3, 3, false, config_of(2, 96, 2, 2, 1, Turns::none), d192_192_rows_96_keys},
    {3, 3, false, config_of(2, 80, 2, 2, 1, Turns::none), d192_192_rows_80_keys},
    {3, 3, false, config_of(1, 64, 3, 3, 1, Turns::none), d192_192_64_rows},
    {4, 4, false, config_of(2, 64, 3, 2, 1, Turns::none), d256_128_rows_64_keys},
    {4, 4, false, config_of(2, 80, 2, 2, 1, Turns::none), d256_128_rows_80_keys},
    {4, 4, false, config_of(1, 64, 2, 2, 1, Turns::none), d256_64_rows},
    {8, 8, false, config_of(2, 32, 2, 2, 1, Turns::none, 2), d512_64_rows},
    {1, 1, true, config_of(2, 128, 2, 2, 2, Turns::none), d64_terms_128_rows_128_keys},
    {1, 1, true, config_of(3, 64, 3, 3, 2, Turns::none), d64_terms_192_rows},
    {1, 1, true, config_of(2, 64, 4, 4, 2, Turns::none), d64_terms_128_rows_64_keys},
    {1, 1, true, pair_of(64, 3, 2), d64_terms_pair},
    {2, 2, true, config_of(2, 128, 2, 2, 1, Turns::products), d128_terms_128_rows_128_keys},
    {2, 2, true, config_of(2, 64, 3, 3, 2, Turns::none), d128_terms_128_rows_64_keys},
    {2, 2, true, config_of(2, 64, 3, 3, 1, Turns::none), d128_terms_single_q},
    {2, 2, true, pair_of(64, 2, 1), d128_terms_pair},
    {3, 3, true, config_of(2, 48, 3, 3, 1, Turns::none), d192_terms_128_rows},
    {3, 3, true, config_of(1, 48, 3, 3, 1, Turns::none), d192_terms_64_rows},
    {4, 4, true, config_of(2, 32, 3, 3, 1, Turns::none), d256_terms_128_rows},
    {4, 4, true, config_of(1, 32, 3, 3, 1, Turns::none), d256_terms_64_rows},
    {8, 8, true, config_of(2, 32, 2, 2, 1, Turns::none, 2), d512_terms_64_rows},
};

constexpr bool agree(const Variant& variant, const Config& config, size_t bytes) {
  return static_cast<size_t>(shared_bytes(variant, config)) == bytes;
}
template <Variant variant, Config config>
constexpr bool sizes_agree = agree(variant, config, sizeof(device::sm90_fwd_ranged::SharedStorage<variant, config>));

static_assert(sizes_agree<Variant{.dim_qk = 96, .dim_v = 48}, candidates[0].config>);
static_assert(sizes_agree<Variant{.dim_qk = 192, .dim_v = 128}, config_of(2, 112, 2, 2, 1, Turns::none)>);
static_assert(sizes_agree<Variant{.scores = Scores::staged, .tile = TermTile::half}, pair_of(64, 2, 1)>);
static_assert(sizes_agree<Variant{.dim_qk = 192, .dim_v = 192, .scores = Scores::staged, .tile = TermTile::single},
                          config_of(2, 48, 3, 3, 1, Turns::none)>);

double block_us(const Problem& problem, const Candidate& candidate) {
  const Config& config = candidate.config;
  const Variant variant = variant_of(problem, false);
  const int panels = candidate.panels_qk + candidate.panels_v;
  const ClassCost& of_class = panels <= 2 ? up_to_64 : panels <= 4 ? up_to_128 : wider;
  const double dims = variant.dim_qk + variant.dim_v, share = dims / (panels * device::panel_columns);
  double us = candidate.cost.block_us * (of_class.fixed_share + (1 - of_class.fixed_share) * share);
  if (problem.softcap != 0) us *= of_class.softcap;
  if (variant.scores == Scores::general) us *= direct_terms;
  const bool ragged = variant.mask == Mask::ranged || has_lengths_on_device(problem);
  if (ragged && config.turns == Turns::products) us *= ragged_with_turns;
  const Pack pack = pack_of(problem);
  const bool reads_once = problem.seq_q << pack.log2 <= tile_rows(config) && pack.heads() == problem.group();
  return reads_once ? std::max(us, config.block_n * dims * 2 * config.ctas_per_sm / memory_bytes_per_us) : us;
}

// Costs of the tiles of one pair, first rows first. Of lengths on the device the upper bounds count.
std::vector<double> tile_costs(const Problem& problem, const Candidate& candidate, int64_t tiles_m) {
  const device::Band<int32_t> band = band_of(problem);
  const double per_block = block_us(problem, candidate);
  const double per_tile = candidate.cost.tile_us + (mask_of(problem) == Mask::ranged ? window_tile_us : 0);
  const int positions = tile_positions(candidate.config, pack_of(problem));
  const int last_row = static_cast<int>(problem.seq_q) - 1;
  std::vector<double> costs(static_cast<size_t>(tiles_m));
  for (size_t m = 0; m < costs.size(); ++m) {
    const int first = static_cast<int>(m) * positions, last = std::min(first + positions - 1, last_row);
    const int blocks = device::key_blocks(band, first, last, candidate.config.block_n).count();
    costs[m] = per_tile + std::max(blocks, 1) * per_block;
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

// Sections whose tiles fill pairs of rows of the schedule balance best; small ones keep K and V in the L2. Past some
// size every choice is balanced, and trying them would cost more than it gains.
void choose_section(const Problem& problem, const std::vector<double>& costs, const gpu::DeviceProperties& device,
                    Schedule& schedule) {
  constexpr int64_t most_tiles_to_try = 1 << 15;
  constexpr double beyond_l2 = 1.02;
  std::vector<int64_t> widths = {schedule.pairs};
  for (int64_t rows = 2; rows <= 16; rows += 2) {
    const int64_t width = rows * schedule.grid / schedule.tiles_m;
    for (int64_t near : {width, width + 1})
      if (near >= 1 && near < schedule.pairs) widths.push_back(near);
  }
  const int64_t pair_bytes =
      band_of(problem).keys * (problem.dim_qk + problem.dim_v) * 2 * pack_of(problem).heads() / problem.group();
  const auto penalty = [&](int64_t width) { return width * pair_bytes > device.l2_bytes ? beyond_l2 : 1.0; };
  schedule.makespan_us = 1e30;
  for (int64_t width : widths) {
    const double us = makespan_us(schedule, costs, width) * penalty(width);
    if (us < schedule.makespan_us * 0.9995) {
      schedule.makespan_us = us;
      schedule.section = width;
    }
    if (schedule.tiles_m * schedule.pairs > most_tiles_to_try) break;
  }
}

Schedule schedule_for(const Problem& problem, const Candidate& candidate, const gpu::DeviceProperties& device) {
  Schedule schedule;
  schedule.tiles_m = device::ceil_div<int64_t>(problem.seq_q, tile_positions(candidate.config, pack_of(problem)));
  schedule.pairs = problem.batch * packs_of(problem);
  const int64_t tiles = schedule.tiles_m * schedule.pairs;
  // Where the host knows lengths, splitting pays only for SMs that would have nothing to do.
  const int64_t few = has_lengths_on_device(problem) ? parts_per_sm * device.sm_count : device.sm_count;
  schedule.splits = row_groups(candidate.config) == 1 && tiles < few && band_of(problem).keys >= 2 * least_part_keys;
  schedule.listed = schedule.splits || has_lengths_on_device(problem) || masks_keys_alone(problem);
  const int64_t ctas = int64_t{device.sm_count} * candidate.config.ctas_per_sm;
  schedule.grid = schedule.splits ? ctas : std::min<int64_t>(tiles, ctas);
  const std::vector<double> costs = tile_costs(problem, candidate, schedule.tiles_m);
  double all = 0;
  for (const double cost : costs) all += cost * static_cast<double>(schedule.pairs);
  const double share = all / static_cast<double>(schedule.grid);
  if (schedule.listed)
    schedule.makespan_us = share + listing_us + (schedule.splits ? combining_us : *std::ranges::max_element(costs) / 2);
  else if (mask_of(problem) == Mask::full)
    schedule.makespan_us = static_cast<double>(device::ceil_div(tiles, schedule.grid)) * costs[0];
  else
    choose_section(problem, costs, device, schedule);
  return schedule;
}

}  // namespace

std::vector<Choice> best_first(const Problem& problem, const gpu::DeviceProperties& device) {
  const Variant variant = variant_of(problem, false);
  const int panels_qk = device::sm90_fwd_ranged::panels_of(variant.dim_qk),
            panels_v = device::sm90_fwd_ranged::panels_of(variant.dim_v);
  // The candidates of the narrowest class that holds both dims.
  const auto fits = [&](const Candidate& c) {
    return c.panels_qk >= panels_qk && c.panels_v >= panels_v &&
           c.for_terms == (variant.scores == Scores::general || variant.scores == Scores::staged);
  };
  const auto* narrowest = std::ranges::find_if(candidates, fits);
  std::vector<Choice> choices;
  for (const Candidate& candidate : candidates) {
    if (!fits(candidate) || candidate.panels_qk != narrowest->panels_qk || candidate.panels_v != narrowest->panels_v)
      continue;
    if (legal(variant, candidate.config, device.smem_per_block_bytes))
      choices.push_back({candidate.config, schedule_for(problem, candidate, device)});
  }
  std::ranges::sort(choices, {}, [](const Choice& choice) { return choice.schedule.makespan_us; });
  return choices;
}

}  // namespace attune::sm90::ranged
