// What sm90/fwd is compiled for, what a launch of it is told, and what lies in shared memory.
#pragma once

#include "kernels/attention/dense_keys.cuh"
#include "kernels/common/divisor.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sm90/epilogue.cuh"

namespace attune::device::sm90_fwd {

using namespace attune::device::sm90;

struct Variant {
  Dtype dtype = Dtype::bf16;
  int dim = 128;
  bool causal = false;
};

// What warpgroups do one after the other, so that their phases interlock instead of colliding.
enum class Turns { none, products };

struct Config {
  int warpgroups = 2;  // of consumers, 64 query rows each
  int block_n = 128;   // keys per block
  int stages_k = 2;
  int stages_v = 2;
  int q_slots = 2;  // with 1, each warpgroup's rows come and go on their own
  int consumer_registers = 240;
  int producer_registers = 24;
  Turns turns = Turns::none;
  bool early_waits = false;  // for the next K under the products, and for PV after the sums were looked at
};

struct Params {
  TensorMap q, k, v;
  DenseOutputs out;
  DenseKeys keys;
  int32_t group;
  int32_t tiles_m, tiles;
  float scale_log2;
  // (batch, head) pairs are walked in sections, longest tiles of a section first. The last section may be narrower.
  Divisor heads, section_tiles, section, last_section;
  int32_t whole_sections;
};

constexpr int rows_per_warpgroup = 64;

// Parts of a slot of Q that come and go on their own.
ATTUNE_SHARED_CODE int q_parts(Config config) { return config.q_slots == 1 ? config.warpgroups : 1; }

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
  static constexpr int panels = variant.dim / panel_columns;
  uint8_t q[config.q_slots][config.warpgroups][panels][panel_bytes(rows_per_warpgroup)];
  uint8_t k[config.stages_k][panels][panel_bytes(config.block_n)];
  uint8_t v[config.stages_v][panels][panel_bytes(config.block_n)];
  Mbarrier q_full[config.q_slots][q_parts(config)], q_free[config.q_slots][q_parts(config)];
  Mbarrier k_full[config.stages_k], k_free[config.stages_k];
  Mbarrier v_full[config.stages_v], v_free[config.stages_v];
};

ATTUNE_SHARED_CODE int threads(Config config) { return (config.warpgroups + 1) * 128; }
ATTUNE_SHARED_CODE int tile_rows(Config config) { return config.warpgroups * rows_per_warpgroup; }

// The bytes of SharedStorage<variant, config>, for configurations that are not known at compile time.
ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int rows = config.q_slots * tile_rows(config) + (config.stages_k + config.stages_v) * config.block_n;
  const int barriers = 2 * (config.q_slots * q_parts(config) + config.stages_k + config.stages_v);
  return round_up(rows * variant.dim * 2 + barriers * 8, 1024);
}

ATTUNE_SHARED_CODE int role_registers(Config config) {
  return 128 * (config.warpgroups * config.consumer_registers + config.producer_registers);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_limit_bytes) {
  const bool known_dim = variant.dim == 64 || variant.dim == 128 || variant.dim == 256;
  // The register file holds what the launch gave out: as many per thread as fit, in steps of 8.
  const int at_launch = 65536 / threads(config) / 8 * 8 * threads(config);
  return known_dim && variant.dtype != Dtype::f32 && config.block_n % 16 == 0 && config.stages_k >= 2 &&
         config.stages_v >= 2 && config.q_slots >= 1 && role_registers(config) <= at_launch &&
         shared_bytes(variant, config) <= shared_limit_bytes;
}

}  // namespace attune::device::sm90_fwd
