// The end of a row: its sum and log-sum-exp, and O from registers to memory.
#pragma once

#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/call.cuh"
#include "kernels/sm90/tile.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

// A row of a tile: the position and head that it stands for.
struct Row {
  int in_tile, position, head;

  ATTUNE_DEVICE Row(const Call& call, const Tile& tile, int row_group, int row)
      : in_tile(row_group * rows_per_warpgroup + row),
        position(tile.first_position(call.pack, row_group) + call.pack.position(row)),
        head(tile.head * call.pack.heads() + call.pack.head(row)) {}
};

ATTUNE_DEVICE uint16_t* output_row(const Call& call, const Tile& tile, const Row& row) {
  return static_cast<uint16_t*>(call.o) + tile.batch * call.o_batch_stride + row.head * call.o_head_stride +
         (tile.first_q + row.position) * call.o_row_stride;
}

// The end of a sum of exponentials, which are relative to 2^top: the log-sum-exp, -inf if there is none, and what O is
// multiplied by, 0 for a row that saw no key. The sink is a key without a value.
struct RowEnd {
  float lse, inverse;

  ATTUNE_DEVICE RowEnd(float top, float sum, const float* sink) {
    constexpr float ln2 = 0.693147180559945f;
    float total = sum, weight = 1;
    if (sink != nullptr) {
      constexpr float log2_e = 1.44269504088896f, lowest = -3.0e38f;
      const float own = top, sink_log2 = *sink * log2_e;
      top = fmaxf(fmaxf(own, sink_log2), lowest);
      weight = exp2_approx(own - top);
      total = sum * weight + exp2_approx(sink_log2 - top);
    }
    lse = total == 0.f ? minus_infinity : (top + log2_approx(total)) * ln2;
    inverse = sum == 0.f ? 0.f : weight * reciprocal_approx(total);
  }
};

// The sink that joins a row; rows that are not in use have none.
ATTUNE_DEVICE const float* sink_of(const Call& call, const Tile& tile, const Row& row) {
  return call.sink == nullptr || row.position >= tile.rows_used ? nullptr : call.sink + row.head;
}

// Stores the LSE of a row and returns what its O is multiplied by. The result over a part of the keys has no sink: that
// joins when parts are joined.
template <bool may_be_part>
ATTUNE_DEVICE float finish_row(const Call& call, const Tile& tile, const Row& row, float max, float sum, bool stores) {
  if (row.position >= tile.rows_used) sum = 0, max = minus_infinity;
  const bool is_part = may_be_part && tile.part >= 0;
  const RowEnd end(max * call.scale_log2, sum, is_part ? nullptr : sink_of(call, tile, row));
  if (!stores || row.position >= tile.rows_stored) return end.inverse;
  if (is_part)
    call.part_lse[tile.part * rows_per_warpgroup + row.in_tile] = end.lse;
  else if (call.lse != nullptr)
    call.lse[tile.batch * call.lse_batch_stride + row.head * call.lse_head_stride +
             (tile.first_q + row.position) * call.lse_row_stride] = end.lse;
  return end.inverse;
}

// A thread's columns of a row of O from `first_column` on, straight from wgmma's registers: of four units of eight
// columns it holds two neighbouring columns each. The four lanes that share a row exchange them, so that each stores 16
// contiguous bytes. A row that saw no key has zeros, whatever V holds.
template <Dtype dtype, int count>
ATTUNE_DEVICE void store_row(const Call& call, const Tile& tile, const Row& row, int first_column,
                             const float (&o)[count], int i, float inverse, int lane) {
  constexpr int units = count / 4;
  uint16_t* out = output_row(call, tile, row) + first_column + lane % 4 * 8;
#pragma unroll
  for (int c = 0; c < ceil_div(units, 4); ++c) {
    uint32_t pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int unit = 4 * c + j;
      pairs[j] = 0;
      if (unit >= units) continue;
      const float* pair = &o[4 * unit + 2 * i];
      if (inverse != 0.f) pairs[j] = pack<dtype>(pair[0] * inverse, pair[1] * inverse);
    }
    quad_transpose(pairs, lane);
    if (row.position < tile.rows_stored && first_column + 32 * c + lane % 4 * 8 < call.dim_v)
      store_16_bytes(out + 32 * c, pairs);
  }
}

// The same over a part of the keys, in float32.
template <int count>
ATTUNE_DEVICE void store_part(const Call& call, const Tile& tile, const Row& row, int first_column,
                              const float (&o)[count], int i, float inverse, int lane) {
  if (row.position >= tile.rows_stored) return;
  float* out = call.part_o + (int64_t{tile.part} * rows_per_warpgroup + row.in_tile) * call.dim_v;
#pragma unroll
  for (int unit = 0; unit < count / 4; ++unit) {
    const int column = first_column + 8 * unit + lane % 4 * 2;
    if (column >= call.dim_v) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j) out[column + j] = inverse == 0.f ? 0.f : o[4 * unit + 2 * i + j] * inverse;
  }
}

}  // namespace attune::device::sm90
#endif
