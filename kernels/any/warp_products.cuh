// Products of tiles in shared memory by one warp, 16 rows at a time: on the tensor cores for f16 and bf16 (m16n8k16),
// by multiply-adds for f32.
//
// Both leave the result in the same places. Of columns 8 n .. 8 n + 7 a lane holds, as element e of group n,
//
//   row lane / 4 + 8 * (e / 2), column 8 * n + lane % 4 * 2 + e % 2
//
// Rows of a tile begin at multiples of 16 bytes and are 16 bytes longer than they need to be, so that eight of them
// fall into different banks.
#pragma once

#include "kernels/any/simt.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::any {

template <Dtype dtype>
struct StoredAs {
  using Type = uint16_t;
};
template <>
struct StoredAs<Dtype::f32> {
  using Type = float;
};

// Elements from one row of a tile to the next.
ATTUNE_SHARED_CODE int tile_pitch(Dtype dtype, int dim) { return dim + 16 / bytes_of(dtype); }

#ifdef ATTUNE_DEVICE

constexpr int depth_step = 16;  // of one instruction

// sum += a b^T: 16 rows of a, `columns` rows of b, both `depth` long.
template <Dtype dtype, int columns, int depth, int pitch>
ATTUNE_DEVICE void add_dot_products(float (&sum)[columns / 8][4], const uint16_t* a, const uint16_t* b) {
  static_assert(columns % 16 == 0 && depth % 32 == 0);
  const int lane = threadIdx.x % warp_size;
  const uint16_t* const a_row = a + lane % 16 * pitch + lane / 16 * 8;
  const uint16_t* const b_row = b + (lane / 16 * 8 + lane % 8) * pitch + lane / 8 % 2 * 8;
  ATTUNE_ROLLED
  for (int first = 0; first < depth; first += 32) {
    ATTUNE_UNROLL
    for (int k = first; k < first + 32; k += depth_step) {
      uint32_t x[4];
      ldmatrix_x4(x, a_row + k);
      ATTUNE_UNROLL
      for (int j = 0; j < columns / 16; ++j) {
        uint32_t y[4];
        ldmatrix_x4(y, b_row + 16 * j * pitch + k);
        mma_16x8x16<dtype>(sum[2 * j], x, y[0], y[1]);
        mma_16x8x16<dtype>(sum[2 * j + 1], x, y[2], y[3]);
      }
    }
  }
}

template <Dtype dtype, int columns, int depth, int pitch>
ATTUNE_DEVICE void add_dot_products(float (&sum)[columns / 8][4], const float* a, const float* b) {
  const int lane = threadIdx.x % warp_size;
  const float* const a_row = a + lane / 4 * pitch;
  const float* const b_row = b + lane % 4 * 2 * pitch;
  ATTUNE_ROLLED
  for (int k = 0; k < depth; k += 4) {
    const Float4 x[2] = {*reinterpret_cast<const Float4*>(a_row + k),
                         *reinterpret_cast<const Float4*>(a_row + 8 * pitch + k)};
    ATTUNE_UNROLL
    for (int j = 0; j < columns / 8; ++j) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const Float4 y = *reinterpret_cast<const Float4*>(b_row + (8 * j + e % 2) * pitch + k);
        float& to = sum[j][e];
        to = fma(x[e / 2].x, y.x, to);
        to = fma(x[e / 2].y, y.y, to);
        to = fma(x[e / 2].z, y.z, to);
        to = fma(x[e / 2].w, y.w, to);
      }
    }
  }
}

// sum += weights b: 16 rows of `depth` weights as add_dot_products leaves them, rounded to the dtype; `depth` rows of
// b, of which `columns` elements count.
template <Dtype dtype, int columns, int depth, int pitch>
ATTUNE_DEVICE void add_weighted_rows(float (&sum)[columns / 8][4], const float (&weights)[depth / 8][4],
                                     const uint16_t* b) {
  static_assert(columns % 16 == 0 && depth % depth_step == 0);
  const int lane = threadIdx.x % warp_size;
  const uint16_t* const b_row = b + lane % 16 * pitch + lane / 16 * 8;
  ATTUNE_UNROLL
  for (int k = 0; k < depth / depth_step; ++k) {
    const uint32_t x[4] = {pack<dtype>(weights[2 * k][0], weights[2 * k][1]),
                           pack<dtype>(weights[2 * k][2], weights[2 * k][3]),
                           pack<dtype>(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                           pack<dtype>(weights[2 * k + 1][2], weights[2 * k + 1][3])};
    ATTUNE_UNROLL
    for (int j = 0; j < columns / 16; ++j) {
      uint32_t y[4];
      ldmatrix_x4_trans(y, b_row + k * depth_step * pitch + 16 * j);
      mma_16x8x16<dtype>(sum[2 * j], x, y[0], y[1]);
      mma_16x8x16<dtype>(sum[2 * j + 1], x, y[2], y[3]);
    }
  }
}

// A row's weights lie with the four lanes that share the row.
template <Dtype dtype, int columns, int depth, int pitch>
ATTUNE_DEVICE void add_weighted_rows(float (&sum)[columns / 8][4], const float (&weights)[depth / 8][4],
                                     const float* b) {
  const int lane = threadIdx.x % warp_size;
  ATTUNE_UNROLL
  for (int k = 0; k < depth; ++k) {
    const int holder = lane / 4 * 4 + k % 8 / 2;
    const float x[2] = {__shfl_sync(0xffffffffu, weights[k / 8][k % 2], holder),
                        __shfl_sync(0xffffffffu, weights[k / 8][2 + k % 2], holder)};
    ATTUNE_UNROLL
    for (int j = 0; j < columns / 8; ++j) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) sum[j][e] = fma(x[e / 2], b[k * pitch + 8 * j + lane % 4 * 2 + e % 2], sum[j][e]);
    }
  }
}

#endif

}  // namespace attune::device::any
