// What a problem is to sm90/fwd_ranged: the variant that is compiled for it, which keys its rows see, and which heads
// share a tile.
#pragma once

#include "core/problem.hpp"
#include "jit/fields.hpp"
#include "kernels/sm90/fwd_ranged_storage.cuh"

namespace attune::device {

constexpr std::string_view initializer_of(Mask mask) {
  return mask == Mask::full ? "Mask::full" : mask == Mask::causal ? "Mask::causal" : "Mask::ranged";
}

}  // namespace attune::device

namespace attune::device::sm90 {

constexpr std::string_view initializer_of(Scores scores) {
  switch (scores) {
    case Scores::plain:
      return "Scores::plain";
    case Scores::capped:
      return "Scores::capped";
    case Scores::staged:
      return "Scores::staged";
    case Scores::general:
      break;
  }
  return "Scores::general";
}

constexpr std::string_view initializer_of(TermTile tile) {
  switch (tile) {
    case TermTile::none:
      return "TermTile::none";
    case TermTile::mask:
      return "TermTile::mask";
    case TermTile::half:
      return "TermTile::half";
    case TermTile::single:
      break;
  }
  return "TermTile::single";
}

}  // namespace attune::device::sm90

namespace attune::device::sm90_fwd_ranged {

constexpr std::string_view initializer_of(Turns turns) {
  return turns == Turns::none ? "Turns::none" : "Turns::products";
}

// The bytes of SharedStorage<variant, config>, for configurations that are not known at compile time.
constexpr int shared_bytes(Variant variant, Config config) {
  const int columns_qk = panels_of(variant.dim_qk) * panel_columns,
            columns_v = panels_of(variant.dim_v) * panel_columns;
  const int tiles = (config.q_slots * tile_rows(config) + config.stages_k * config.block_n) * columns_qk * 2 +
                    config.stages_v * config.block_n * columns_v * 2;
  const int barriers = 2 * (tile_slots + config.q_slots * q_parts(config) + config.stages_k + config.stages_v);
  const TermLayout layout{variant.tile, config.block_n};
  const int keys = variant.scores == Scores::staged ? config.block_n : 4;
  const int terms = config.stages_k * (row_groups(config) * max_of(layout.bytes(), 16) + keys * 4);
  return round_up(tiles + terms + tile_slots * static_cast<int>(sizeof(Tile)) + barriers * 8, 1024);
}

constexpr int role_registers(Config config) {
  return 128 * (config.warpgroups * config.consumer_registers + config.producer_registers);
}

constexpr bool legal(Variant variant, Config config, int shared_limit_bytes) {
  // The register file holds what the launch gave out: as many per thread as fit, in steps of 8.
  const int at_launch = 65536 / config.ctas_per_sm / threads(config) / 8 * 8 * threads(config);
  // Each of several CTAs on an SM has a share of its shared memory, less what the hardware keeps for itself.
  const int share =
      config.ctas_per_sm == 1 ? shared_limit_bytes : (shared_limit_bytes + 1024) / config.ctas_per_sm - 1024;
  // The V blocks that only later warpgroups see must fit into the ring: see skip_values.
  const bool skipped_fit = (row_groups(config) - 1) * rows_per_warpgroup <= (config.stages_v - 1) * config.block_n;
  return row_groups(config) <= most_row_groups && config.block_n % 16 == 0 && config.stages_k >= 2 &&
         config.stages_v >= 2 && config.q_slots >= 1 && role_registers(config) <= at_launch && skipped_fit &&
         shared_bytes(variant, config) <= share;
}

}  // namespace attune::device::sm90_fwd_ranged

namespace attune::jit {

using device::sm90_fwd_ranged::Config;
using device::sm90_fwd_ranged::Variant;
template <>
inline constexpr auto fields<Variant> =
    list(ATTUNE_FIELD(Variant, dtype), ATTUNE_FIELD(Variant, dim_qk), ATTUNE_FIELD(Variant, dim_v),
         ATTUNE_FIELD(Variant, mask), ATTUNE_FIELD(Variant, scores), ATTUNE_FIELD(Variant, tile),
         ATTUNE_FIELD(Variant, listed));
template <>
inline constexpr auto fields<Config> =
    list(ATTUNE_FIELD(Config, warpgroups), ATTUNE_FIELD(Config, value_parts), ATTUNE_FIELD(Config, block_n),
         ATTUNE_FIELD(Config, stages_k), ATTUNE_FIELD(Config, stages_v), ATTUNE_FIELD(Config, q_slots),
         ATTUNE_FIELD(Config, consumer_registers), ATTUNE_FIELD(Config, producer_registers),
         ATTUNE_FIELD(Config, turns), ATTUNE_FIELD(Config, ctas_per_sm));

}  // namespace attune::jit

namespace attune::sm90::ranged {

using device::Mask;
using device::sm90::Pack;
using device::sm90::rows_per_warpgroup;
using device::sm90::Scores;
using device::sm90::TermTile;
using device::sm90_fwd_ranged::Config;
using device::sm90_fwd_ranged::Variant;

bool has_lengths_on_device(const Problem& problem);
// Something that sm90/fwd or sm90/fwd_small may take.
bool is_dense(const Problem& problem);
// There is a mask, and it is the same for all heads and rows, as that of a padded batch is.
bool masks_keys_alone(const Problem& problem);

// Which keys the rows see, where the host knows the lengths. Its keys end with the last one that some row sees: under a
// top-left mask those past the last row are hidden from all, and leaving them out of the tensor maps keeps whatever
// lies there from being read.
device::Band<int32_t> band_of(const Problem& problem);
Mask mask_of(const Problem& problem);

// Within these an exponent scale * (s - max) stays a float32 for ordinary scores.
constexpr bool is_ordinary(float factor) { return factor >= 1e-20f && factor <= 1e20f; }
Scores scores_of(const Problem& problem);
// Of Scores::staged: what every score has one of its own of.
TermTile tile_of(const Problem& problem);
// The tensor that has it: bias or mask.
const attune_score_strides& tile_strides(const Problem& problem);

Variant variant_of(const Problem& problem, bool listed);

// The heads of a group are rows of one tile where that fills tiles better.
Pack pack_of(const Problem& problem);
int64_t packs_of(const Problem& problem);  // of a sequence

}  // namespace attune::sm90::ranged
