// The online softmax of a 64-row score tile in wgmma registers: a thread holds two rows, and four lanes share a row.
#pragma once

#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device {

constexpr float minus_infinity = -1.0f / 0.0f;

// Of two rows: what P is relative to, unscaled, and the sum of this thread's columns.
struct RowState {
  float max[2] = {minus_infinity, minus_infinity};
  float sum[2] = {0, 0};
};

// Hides the columns from limit[i] on; limits are relative to the tile.
template <int columns>
ATTUNE_DEVICE void mask_columns(float (&s)[columns / 2], const int (&limit)[2], int lane) {
#pragma unroll
  for (int j = 0; j < columns / 2; ++j)
    if (j / 4 * 8 + j % 2 >= limit[j / 2 % 2] - lane % 4 * 2) s[j] = minus_infinity;
}

// Moves a maximum that a row outgrew, and says by how much earlier results must shrink; false if none did in this warp.
// P may reach 2^8 before that: sums are float32 and keep the same reference, so nothing is lost, and most blocks leave
// O alone.
template <int columns>
ATTUNE_DEVICE bool move_max(const float (&s)[columns / 2], float scale_log2, RowState& rows, float (&shrink)[2]) {
  float fresh[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m[4] = {s[2 * i], s[2 * i + 1], s[2 * i + 4], s[2 * i + 5]};
#pragma unroll
    for (int j = 2; j < columns / 8; j += 2) {
      m[0] = fmaxf(m[0], s[4 * j + 2 * i]);
      m[1] = fmaxf(m[1], s[4 * j + 2 * i + 1]);
      m[2] = fmaxf(m[2], s[4 * j + 2 * i + 4]);
      m[3] = fmaxf(m[3], s[4 * j + 2 * i + 5]);
    }
    fresh[i] = quad_max(fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3])));
  }
  const float growth = fmaxf(fresh[0] - rows.max[0], fresh[1] - rows.max[1]) * scale_log2;
  const bool moved = __any_sync(0xffffffffu, growth > 8.f);
  if (moved) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float old = rows.max[i];
      rows.max[i] = fmaxf(old, fresh[i]);
      shrink[i] = old == minus_infinity ? 0.f : exp2_approx((old - rows.max[i]) * scale_log2);
      rows.sum[i] *= shrink[i];
    }
  }
  return moved;
}

// s becomes exp2(scale * s - max); its sums over this thread's columns. Only where some row may have seen nothing yet
// must that be looked at: such a row gives zeros.
template <int columns, bool maybe_empty>
ATTUNE_DEVICE void exponentiate(float (&s)[columns / 2], float scale_log2, const RowState& rows,
                                float (&block_sum)[2]) {
  float offset[2], sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    offset[i] = rows.max[i] * scale_log2;
    if (maybe_empty && rows.max[i] == minus_infinity) offset[i] = 0;
  }
#pragma unroll
  for (int j = 0; j < columns / 2; ++j) {
    s[j] = exp2_approx(s[j] * scale_log2 - offset[j / 2 % 2]);
    sum[j % 4] += s[j];
  }
  block_sum[0] = sum[0] + sum[1];
  block_sum[1] = sum[2] + sum[3];
}

// The sum of a thread's columns of a block above which P may have left its range: 2^16 still fits beside what float32
// sums keep, and an f16 P ends at 2^16.
template <Dtype dtype>
constexpr float trusted_sum = dtype == Dtype::bf16 ? 65536.f : 16384.f;

// Whether a row of the warp left that range: its maximum, kept on trust, was too small.
template <Dtype dtype>
ATTUNE_DEVICE bool outgrown(const float (&block_sum)[2]) {
  constexpr float limit = trusted_sum<dtype>;
  return __any_sync(0xffffffffu, block_sum[0] > limit || block_sum[1] > limit);
}

// The scores of a warp's 16 rows once more, by mma.sync: wgmma needs the whole warpgroup, and a single warp asks for
// this. The accumulators of both lie alike in registers. `q_rows` and `k_rows` are tiles of panels with the 128-byte
// swizzle; the warp's rows begin at `row` of a tile of `tile_rows` rows.
template <Dtype dtype, int dim, int columns>
ATTUNE_DEVICE void score_again(float (&s)[columns / 2], const uint8_t* q_rows, int row, int tile_rows,
                               const uint8_t* k_rows, int lane) {
#pragma unroll
  for (int j = 0; j < columns / 2; ++j) s[j] = 0;
#pragma unroll 1
  for (int step = 0; step < dim / 16; ++step) {
    uint32_t a[4];
    ldmatrix_x4(a, q_rows + swizzled_offset(row + lane % 16, step * 16 + lane / 16 * 8, tile_rows));
#pragma unroll
    for (int j = 0; j < columns / 16; ++j) {
      uint32_t b[4];
      ldmatrix_x4(b,
                  k_rows + swizzled_offset(16 * j + lane / 16 * 8 + lane % 8, step * 16 + lane / 8 % 2 * 8, columns));
      mma_16x8x16<dtype>(&s[8 * j], a, b[0], b[1]);
      mma_16x8x16<dtype>(&s[8 * j + 4], a, b[2], b[3]);
    }
  }
}

// How P of a block gets the maximum that it is relative to.
enum class Maximum {
  found,    // in the block, before the exponentials
  sampled,  // in a quarter of the block's scores
  trusted   // that of earlier blocks
};

// For a warp whose block outgrew a maximum that was sampled or trusted: the scores once more, and their maximum found.
// Nothing masks these scores, so every row must see every key of the block.
template <Dtype dtype, int dim, int columns>
ATTUNE_DEVICE bool find_max_again(float (&s)[columns / 2], const uint8_t* q_rows, int row, int tile_rows,
                                  const uint8_t* k_rows, int lane, float scale_log2, RowState& rows,
                                  float (&shrink)[2]) {
  score_again<dtype, dim, columns>(s, q_rows, row, tile_rows, k_rows, lane);
  return move_max<columns>(s, scale_log2, rows, shrink);
}

// O of a tile, in wgmma registers, after the maximum moved.
template <int count>
ATTUNE_DEVICE void shrink_rows(float (&o)[count], const float (&shrink)[2]) {
#pragma unroll
  for (int j = 0; j < count; ++j) o[j] *= shrink[j / 2 % 2];
}

// P as the A operand of the next product.
template <Dtype dtype, int columns>
ATTUNE_DEVICE void pack_rows(uint32_t (*p)[4], const float (&s)[columns / 2]) {
#pragma unroll
  for (int j = 0; j < columns / 4; ++j) p[j / 4][j % 4] = pack<dtype>(s[2 * j], s[2 * j + 1]);
}

}  // namespace attune::device
#endif
