// What sm90/fwd_ranged is compiled for, what a launch of it is told, and what lies in shared memory.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sm90/call.cuh"
#include "kernels/sm90/scores.cuh"
#include "kernels/sm90/term_stages.cuh"
#include "kernels/sm90/tile_plan.cuh"

namespace attune::device::sm90_fwd_ranged {

using namespace attune::device::sm90;

struct Variant {
  Dtype dtype = Dtype::bf16;
  int dim_qk = 128;  // multiples of 16; of values at least 32
  int dim_v = 128;
  Mask mask = Mask::full;
  Scores scores = Scores::plain;
  TermTile tile = TermTile::none;  // of Scores::staged
  bool listed = false;             // tiles: their lengths live on the device, or their keys are split
};

// What warpgroups do one after the other, so that their phases interlock instead of colliding.
enum class Turns { none, products };

struct Config {
  int warpgroups = 2;  // of consumers, 64 query rows each
  // Warpgroups that have the same rows, each with a share of the columns of O, which one could not hold. Each of them
  // computes the scores.
  int value_parts = 1;
  int block_n = 128;  // keys per block
  int stages_k = 2;
  int stages_v = 2;
  int q_slots = 2;  // with 1, each group of 64 rows comes and goes on its own
  int consumer_registers = 240;
  int producer_registers = 24;
  Turns turns = Turns::none;
  int ctas_per_sm = 1;
};

struct Params {
  Call call;
  Plan plan;
};

constexpr int tile_slots = 4;

// Parts of a slot of Q that come and go on their own.
ATTUNE_SHARED_CODE int row_groups(Config config) { return config.warpgroups / config.value_parts; }
ATTUNE_SHARED_CODE int q_parts(Config config) { return config.q_slots == 1 ? row_groups(config) : 1; }
ATTUNE_SHARED_CODE int panels_of(int dim) { return ceil_div(dim, panel_columns); }

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
  uint8_t q[config.q_slots][row_groups(config)][panels_of(variant.dim_qk)][panel_bytes(rows_per_warpgroup)];
  uint8_t k[config.stages_k][panels_of(variant.dim_qk)][panel_bytes(config.block_n)];
  uint8_t v[config.stages_v][panels_of(variant.dim_v)][panel_bytes(config.block_n)];
  // Terms of the blocks of K in the same stages; a few bytes where there are none.
  uint8_t terms[config.stages_k][row_groups(config)][max_of(TermLayout{variant.tile, config.block_n}.bytes(), 16)];
  float key_terms[config.stages_k][variant.scores == Scores::staged ? config.block_n : 4];
  Tile tiles[tile_slots];
  Mbarrier tile_full[tile_slots], tile_free[tile_slots];
  Mbarrier q_full[config.q_slots][q_parts(config)], q_free[config.q_slots][q_parts(config)];
  Mbarrier k_full[config.stages_k], k_free[config.stages_k];
  Mbarrier v_full[config.stages_v], v_free[config.stages_v];
};

ATTUNE_SHARED_CODE int threads(Config config) { return (config.warpgroups + 1) * 128; }
ATTUNE_SHARED_CODE int tile_rows(Config config) { return row_groups(config) * rows_per_warpgroup; }
ATTUNE_SHARED_CODE int tile_positions(Config config, Pack pack) { return tile_rows(config) >> pack.log2; }

}  // namespace attune::device::sm90_fwd_ranged
