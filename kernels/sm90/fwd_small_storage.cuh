// What sm90/fwd_small is compiled for, what a launch of it is told, and what lies in shared memory.
#pragma once

#include "kernels/attention/dense_keys.cuh"
#include "kernels/common/divisor.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sm90/epilogue.cuh"

namespace attune::device::sm90_fwd_small {

using namespace attune::device::sm90;

struct Variant {
  Dtype dtype = Dtype::f16;
  int dim = 64;
  bool causal = false;
  bool early_keys = false;  // K and V may be read before the kernel ahead has ended
};

struct Config {
  int row_groups = 1;  // warpgroups with rows of their own
  int key_groups = 2;  // warpgroups that share the keys of those rows
  int block_n = 128;
  int stages = 1;   // blocks of a key group in shared memory; with 1 there is never more than one
  int cluster = 1;  // CTAs that share the keys of a tile
  // Two CTAs on an SM: a long tile beside a short one. Otherwise CTA after CTA of a head, the longest first.
  bool paired = false;
};

struct Params {
  TensorMap q, k, v;
  DenseOutputs out;
  DenseKeys keys;  // by position
  float scale_log2;
  int32_t tiles_m;
  int32_t sm_count;        // for pairs
  Divisor pack;            // heads packed into the rows of a tile: all that share a KV head, or 1
  Divisor heads_per_pack;  // packs that share a KV head
  Divisor packs;           // of a sequence
  Divisor all_packs;       // of all sequences
};

constexpr int rows_per_warpgroup = 64;

ATTUNE_SHARED_CODE int threads(Config config) { return config.row_groups * config.key_groups * 128; }
ATTUNE_SHARED_CODE int tile_rows(Config config) { return config.row_groups * rows_per_warpgroup; }

// O of a warpgroup as units: the two rows and two columns that a thread holds of eight columns.
ATTUNE_SHARED_CODE int units_per_group(Variant variant, Config config) { return variant.dim / 8 / config.key_groups; }
// A CTA of a cluster ends with one of the two rows, and with these units.
ATTUNE_SHARED_CODE int units_per_owner(Variant variant, Config config) {
  return config.cluster == 1 ? units_per_group(variant, config) : 2 * units_per_group(variant, config) / config.cluster;
}

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
  static constexpr int panels = variant.dim / panel_columns;
  struct Group {
    uint8_t k[config.stages][panels][panel_bytes(config.block_n)];
    uint8_t v[config.stages][panels][panel_bytes(config.block_n)];
  };
  struct State {
    float max, sum;
  };
  uint8_t q[panels][panel_bytes(tile_rows(config))];
  Group group[config.key_groups];
  float part[config.cluster - 1 + (config.cluster == 1)][units_per_owner(variant, config)]
            [config.cluster == 1 ? 1 : threads(config)][2];
  State part_state[config.cluster][config.cluster == 1 ? 1 : threads(config)];
  State state[config.key_groups][tile_rows(config)];
  Mbarrier q_full, received;
  Mbarrier k_full[config.key_groups][config.stages], v_full[config.key_groups][config.stages];
  Mbarrier free[config.key_groups][config.stages];
};

ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int slots = config.key_groups * config.stages;
  const int tiles = (tile_rows(config) + 2 * slots * config.block_n) * variant.dim * 2;
  const int senders = config.cluster == 1 ? 1 : threads(config);
  const int parts = max_of(config.cluster - 1, 1) * units_per_owner(variant, config) * senders * 8;
  const int states = (config.cluster * senders + config.key_groups * tile_rows(config)) * 8;
  return round_up(tiles + parts + states + (2 + 3 * slots) * 8, 1024);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_limit_bytes) {
  // A group leaves its parts of O where its K and V were.
  const bool parts_fit = config.key_groups == 1 || tile_rows(config) <= config.stages * config.block_n;
  return (variant.dim == 64 || variant.dim == 128) && variant.dtype != Dtype::f32 && config.block_n % 16 == 0 &&
         parts_fit && units_per_group(variant, config) >= 1 && units_per_owner(variant, config) >= 1 &&
         (!config.paired || config.cluster == 1) && shared_bytes(variant, config) <= shared_limit_bytes;
}

}  // namespace attune::device::sm90_fwd_small
