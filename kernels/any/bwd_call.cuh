// What kernel "any/bwd" is compiled for and given: see bwd.cuh.
#pragma once

#include "kernels/any/call.cuh"
#include "kernels/any/warp_products.cuh"

namespace attune::device::any_bwd {

using namespace attune::device::any;

constexpr uint32_t feature_dlse = 0x2000;  // ATTUNE_DLSE

// The launches of a call, in this order.
enum class Part : int32_t {
  deltas,  // of each row: dout.o, less dlse
  sinks,   // dsink
  keys,    // dk and dv
  rows,    // dq
  biases   // dbias
};

struct Variant {
  Part part = Part::keys;
  Dtype dtype = Dtype::f16;
  int dim = 64;          // of q and k as of v, a multiple of 32; the call's own dims may be smaller
  bool general = false;  // with softcap, bias or mask
};

struct Config {
  int warps = 4;     // with 16 rows or keys of their own
  int slices = 1;    // warps that share these, each with a part of the channels of dk and dv
  int columns = 32;  // keys or rows that are walked over at a time
  int stages = 2;    // tiles of these in shared memory
};

// What a row's weights need. Where a row sees nothing the LSE is +inf, so that its weights are 0.
struct alignas(8) RowStats {
  float lse, delta;
};

struct Params {
  Call call;
  const void* dout;
  const float* dlse;
  void *dq, *dk, *dv;
  float* dsink;
  void* dbias;
  RowStats* stats;  // the workspace: heads x stat_rows
  Strides dout_strides, dlse_strides, dq_strides, dk_strides, dv_strides;
  ScoreStrides dbias_strides;
  int64_t stat_rows;             // rows of all sequences
  int64_t bias_rows, bias_keys;  // dbias has them, whatever the sequences use
};

constexpr int rows_per_warp = 16;
constexpr int simple_threads = 128;  // of deltas and sinks

ATTUNE_SHARED_CODE bool is_tiled(Part part) { return part != Part::deltas && part != Part::sinks; }

// dq is half of what dk and dv are, so half the warps hold it; dbias has no channels.
ATTUNE_SHARED_CODE int slices_of(Variant variant, Config config) {
  if (variant.part == Part::biases) return 1;
  return variant.part == Part::rows ? max_of(config.slices / 2, 1) : config.slices;
}

ATTUNE_SHARED_CODE int threads_of(Variant variant, Config config) {
  return is_tiled(variant.part) ? 32 * config.warps * slices_of(variant, config) : simple_threads;
}

template <Variant variant, Config config, bool tiled = is_tiled(variant.part)>
struct SharedStorage {
  static constexpr int own_rows = config.warps * rows_per_warp;
  static constexpr int pitch = tile_pitch(variant.dtype, variant.dim);
  using Element = typename StoredAs<variant.dtype>::Type;
  alignas(16) Element own[2][own_rows][pitch];  // k and v, or q and dout; in the end sums of dbias
  alignas(16) Element other[config.stages][2][config.columns][pitch];  // the other two
  RowStats stats[config.stages][config.columns];                       // of the rows that are walked over
  // What each score is raised by: its bias, or -inf where the mask hides the key. Only for general variants.
  float raised[config.stages][variant.general ? own_rows : 1][config.columns];
};

template <Variant variant, Config config>
struct SharedStorage<variant, config, false> {
  double sums[simple_threads];
};

ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  if (!is_tiled(variant.part)) return 8 * simple_threads;
  const int row_bytes = bytes_of(variant.dtype) * tile_pitch(variant.dtype, variant.dim);
  const int own_rows = config.warps * rows_per_warp, columns = config.stages * config.columns;
  return 2 * row_bytes * (own_rows + columns) + 8 * columns + 4 * columns * (variant.general ? own_rows : 1);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_bytes_per_block) {
  const int slice = variant.dim / config.slices;
  return slice <= 128 && slice % 16 == 0 && config.columns <= 32 &&
         config.columns % (variant.dtype == Dtype::f32 ? 8 : 16) == 0 &&
         shared_bytes(variant, config) <= shared_bytes_per_block;
}

// One dimension of dbias: its tiles are blocks, or, where the bias is broadcast, are summed by each block.
struct BiasDimension {
  int64_t extent, tile;
  bool summed;

  ATTUNE_SHARED_CODE int64_t tiles() const { return ceil_div(extent, tile); }
  ATTUNE_SHARED_CODE int64_t blocks() const { return summed ? min_of<int64_t>(tiles(), 1) : tiles(); }
  ATTUNE_SHARED_CODE int64_t begin(int64_t block) const { return summed ? 0 : block; }
  ATTUNE_SHARED_CODE int64_t end(int64_t block) const { return summed ? tiles() : block + 1; }
};

struct BiasGrid {
  BiasDimension batches, heads, rows, keys;

  ATTUNE_SHARED_CODE int64_t blocks() const {
    return batches.blocks() * heads.blocks() * rows.blocks() * keys.blocks();
  }
};

ATTUNE_SHARED_CODE BiasGrid bias_grid(const Params& params, Config config) {
  const ScoreStrides& strides = params.dbias_strides;
  return {{params.call.batch, 1, strides.batch == 0},
          {params.call.heads, 1, strides.head == 0},
          {params.bias_rows, config.warps * rows_per_warp, strides.query == 0},
          {params.bias_keys, config.columns, strides.key == 0}};
}

// Blocks of work; a CTA walks over them with a stride of the grid.
ATTUNE_SHARED_CODE int64_t blocks_of(Part part, Config config, const Params& params) {
  const Call& call = params.call;
  const int64_t own_rows = config.warps * rows_per_warp;
  switch (part) {
    case Part::deltas:
      return call.batch * call.heads * ceil_div<int64_t>(call.seq_q, simple_threads / 32);
    case Part::sinks:
      return call.heads;
    case Part::keys:
      return call.batch * (call.heads / call.group) * ceil_div(call.seq_k, own_rows);
    case Part::rows:
      return call.batch * call.heads * ceil_div(call.seq_q, own_rows);
    case Part::biases:
      return bias_grid(params, config).blocks();
  }
  return 0;
}

}  // namespace attune::device::any_bwd
