// What the gradients of attention are made of: products of blocks of floats, and the weights of a row with what reaches
// them from behind. cpu/backward.cpp puts them together.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/memory.inl.hpp"
#include "cpu/level/softmax.inl.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

static_assert(float_block_lanes % width == 0);

// `dim` elements from `first` on as floats, and zeros up to full lanes.
void floats_of_row(const void* data, Dtype dtype, int64_t first, int64_t dim, float* to) {
  with_dtype(dtype, [&]<Dtype of>() {
    for_each_vector<of>(element(data, of, first), dim, [&](int64_t i, Floats value) { store(to + i, value); });
  });
  for (int64_t i = round_up(dim, width); i < round_up(dim, float_block_lanes); i += width) store(to + i, Floats{});
}

void elements_of_row(const float* from, float factor, void* data, Dtype dtype, int64_t first, int64_t dim) {
  store_row(from, factor, data, dtype, first, dim);
}

// to[c][r] = from[r][c]
void transpose_block(const float* from, int64_t from_pitch, int64_t rows, int64_t columns, float* to,
                     int64_t to_pitch) {
  for (int64_t r = 0; r < rows; r += width)
    for (int64_t c = 0; c < columns; c += width)
      transpose_square(from + r * from_pitch + c, from_pitch, to + c * to_pitch + r, to_pitch);
}

float dot_of_rows(const float* a, const float* b, int64_t dim) {
  Floats sum{};
  for (int64_t i = 0; i < dim; i += width) sum = multiply_add(load(a + i), load(b + i), sum);
  return sum_of<float>(sum);
}

// Rows and columns that stay in registers while the sum over `depth` runs.
template <int rows, int vectors>
ATTUNE_INLINE void multiply_tile(const BlockProduct& p, int64_t row, int64_t column) {
  Floats sum[rows][vectors];
  ATTUNE_UNROLL
  for (int r = 0; r < rows; ++r) {
    ATTUNE_UNROLL
    for (int v = 0; v < vectors; ++v)
      sum[r][v] = p.add ? load(p.to + (row + r) * p.to_pitch + column + v * width) : Floats{};
  }
  const float* a = p.a + row * p.a_row;
  const float* b = p.b + column;
  for (int64_t k = 0; k < p.depth; ++k) {
    Floats values[vectors];
    ATTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) values[v] = load(b + v * width);
    ATTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const Floats factor = splat(a[r * p.a_row]);
      ATTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sum[r][v] = multiply_add(factor, values[v], sum[r][v]);
    }
    a += p.a_depth;
    b += p.b_pitch;
  }
  ATTUNE_UNROLL
  for (int r = 0; r < rows; ++r) {
    ATTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) store(p.to + (row + r) * p.to_pitch + column + v * width, sum[r][v]);
  }
}

template <int vectors>
ATTUNE_APART void multiply_columns(const BlockProduct& p, int64_t column) {
  constexpr int rows = 4;
  int64_t row = 0;
  for (; row + rows <= p.rows; row += rows) multiply_tile<rows, vectors>(p, row, column);
  for (; row < p.rows; ++row) multiply_tile<1, vectors>(p, row, column);
}

void multiply_blocks(const BlockProduct& p) {
  constexpr int vectors = vector_bytes == 64 ? 4 : 2;
  int64_t column = 0;
  for (; column + vectors * width <= p.columns; column += vectors * width) multiply_columns<vectors>(p, column);
  for (; column < p.columns; column += width) multiply_columns<1>(p, column);
}

// s holds q.k and becomes the weights; dp holds dout.v and becomes the gradient of the scores.
void weights_and_gradients(const GradientRow& row, float* s, float* dp, int64_t count) {
  constexpr float log2_e_high = 1.44269502e+00f, log2_e_low = 1.92596303e-08f;
  const Floats scale = splat(row.scale), lse = splat(row.lse), delta = splat(row.delta);
  for (int64_t j = 0; j < count; j += width) {
    Floats x = load(s + j) * scale;
    Floats slope = splat(1.0f);
    if (row.cap > 0) {
      const Floats t = tanh_of(x / row.cap);
      x = row.cap * t;
      slope = 1.0f - t * t;
    }
    if (row.bias != nullptr) x += load(row.bias + j);
    const Floats weight = exp2_of<float>(x - lse, splat(log2_e_high), splat(log2_e_low)).part[0];
    Floats gradient = weight * (load(dp + j) - delta);
    if (row.of_products) gradient *= slope;
    store(s + j, weight);
    store(dp + j, gradient);
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
