// The end of a row: its sum and log-sum-exp, and O from registers to memory.
#pragma once

#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/call.cuh"
#include "kernels/sm90/tile.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

ATTUNE_DEVICE uint16_t* output_row(const Call& call, const Tile& tile, int row) {
  return static_cast<uint16_t*>(call.o) + tile.batch * call.o_batch_stride + tile.head * call.o_head_stride +
         (tile.first_q + row) * call.o_row_stride;
}

// The end of a row, from its maximum and the sum of its exponentials relative to that: stores the LSE, and returns what
// O is multiplied by. That is 0 for a row that saw no key. The sink is a key without a value.
ATTUNE_DEVICE float finish_row(const Call& call, const Tile& tile, int row, float max, float sum, bool stores_lse) {
  if (row >= tile.rows_used) sum = 0, max = minus_infinity;
  float top = max * call.scale_log2, total = sum, weight = 1;
  if (call.sink != nullptr) {
    constexpr float log2_e = 1.44269504088896f, lowest = -3.0e38f;
    const float sink = call.sink[tile.head] * log2_e, own = top;
    top = fmaxf(fmaxf(own, sink), lowest);
    weight = exp2_approx(own - top);
    total = sum * weight + exp2_approx(sink - top);
  }
  if (stores_lse && row < tile.rows_stored && call.lse != nullptr) {
    constexpr float ln2 = 0.693147180559945f;
    call.lse[tile.batch * call.lse_batch_stride + tile.head * call.lse_head_stride +
             (tile.first_q + row) * call.lse_row_stride] =
        total == 0.f ? minus_infinity : (top + log2_approx(total)) * ln2;
  }
  return sum == 0.f ? 0.f : weight * reciprocal_approx(total);
}

// O of a thread's two rows, `first_row` and the eighth after it, straight from wgmma's registers. Of four units of
// eight columns a thread holds two neighbouring columns each; the four lanes that share a row exchange them, so that
// each stores 16 contiguous bytes. A row that saw no key has zeros, whatever V holds.
template <Dtype dtype, int count>
ATTUNE_DEVICE void store_rows(const Call& call, const Tile& tile, int first_row, const float (&o)[count],
                              const float (&inverse)[2], int lane) {
  constexpr int units = count / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + 8 * i;
    uint16_t* out = output_row(call, tile, row) + lane % 4 * 8;
#pragma unroll
    for (int c = 0; c < ceil_div(units, 4); ++c) {
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int unit = 4 * c + j;
        pairs[j] = 0;
        if (unit >= units) continue;
        const float* pair = &o[4 * unit + 2 * i];
        if (inverse[i] != 0.f) pairs[j] = pack<dtype>(pair[0] * inverse[i], pair[1] * inverse[i]);
      }
      quad_transpose(pairs, lane);
      if (row < tile.rows_stored && 32 * c + lane % 4 * 8 < call.dim_v) store_16_bytes(out + 32 * c, pairs);
    }
  }
}

}  // namespace attune::device::sm90
#endif
