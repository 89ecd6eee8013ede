// Which configurations of sm90/fwd may be compiled, and what they take: the host's side of fwd.cuh.
#pragma once

#include "kernels/sm90/fwd.cuh"

namespace attune::device::sm90_fwd {

// The bytes of SharedStorage<variant, config>, for configurations that are not known at compile time.
constexpr int shared_bytes(Variant variant, Config config) {
  const int rows = config.q_slots * tile_rows(config) + (config.stages_k + config.stages_v) * config.block_n;
  const int barriers = 2 * (config.q_slots * q_parts(config) + config.stages_k + config.stages_v);
  return round_up(rows * variant.dim * 2 + barriers * 8, 1024);
}

constexpr int role_registers(Config config) {
  return 128 * (config.warpgroups * config.consumer_registers + config.producer_registers);
}

constexpr bool legal(Variant variant, Config config, int shared_limit_bytes) {
  const bool known_dim = variant.dim == 64 || variant.dim == 128 || variant.dim == 256;
  // The register file holds what the launch gave out: as many per thread as fit, in steps of 8.
  const int at_launch = 65536 / threads(config) / 8 * 8 * threads(config);
  // With three or four warpgroups of D = 64 no register is left for the other side of a window.
  const bool window_fits = variant.mask != Mask::ranged || variant.dim != 64 || config.warpgroups <= 2;
  // The V blocks that only later warpgroups see must fit into the ring: see skip_values.
  const bool skipped_fit = (config.warpgroups - 1) * rows_per_warpgroup <= (config.stages_v - 1) * config.block_n;
  return known_dim && variant.dtype != Dtype::f32 && config.block_n % 16 == 0 && config.stages_k >= 2 &&
         config.stages_v >= 2 && config.q_slots >= 1 && role_registers(config) <= at_launch && window_fits &&
         skipped_fit && shared_bytes(variant, config) <= shared_limit_bytes;
}

}  // namespace attune::device::sm90_fwd
