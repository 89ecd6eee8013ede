// The two matrix products, as register tiles with the query rows along the vector lanes: S^T = K Q^T and O^T = V^T P^T.
// Keys need no transposition that way, and the softmax needs no sum across lanes.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Up to 3 vectors of rows times this many keys (or columns of V) fill the registers: 24 of 32 or 12 of 16 accumulators.
constexpr int max_vecs = 3;
constexpr int key_step = vector_bytes == 64 ? 8 : 4;
constexpr int tile_rows = max_vecs * width;

// V is packed in strips of this many columns: (dim_v / strip_columns) x packed_keys x strip_columns.
constexpr int strip_columns = key_step;
constexpr int64_t strip_pitch = packed_keys * strip_columns;

// scores[i][row] = sum over d, in order, of k[i][d] * q[d][row], for key_step keys.
template <int Vecs>
ATTUNE_APART void score_tile(const float* k, int64_t k_pitch, const float* q, int64_t dim, float* scores) {
  constexpr int rows = Vecs * width;
  Floats sum[key_step][Vecs] = {};
  for (int64_t d = 0; d < dim; ++d) {
    Floats q_row[Vecs];
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) q_row[v] = load(q + d * rows + v * width);
    ATTUNE_UNROLL
    for (int i = 0; i < key_step; ++i) {
      const Floats key = splat(k[i * k_pitch + d]);
      ATTUNE_UNROLL
      for (int v = 0; v < Vecs; ++v) sum[i][v] = multiply_add(key, q_row[v], sum[i][v]);
    }
  }
  ATTUNE_UNROLL
  for (int i = 0; i < key_step; ++i) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) store(scores + i * rows + v * width, sum[i][v]);
  }
}

// Scores of `keys` keys. Rows of k and of scores must exist up to the next multiple of key_step.
template <int Vecs>
void score_block(const float* k, int64_t k_pitch, int64_t keys, const float* q, int64_t dim, float* scores) {
  for (int64_t i = 0; i < keys; i += key_step)
    score_tile<Vecs>(k + i * k_pitch, k_pitch, q, dim, scores + i * Vecs * width);
}

// out[at] = out[at] * rescale[row] + sum, a vector of rows.
inline void add_to(float* out, const float* rescale, Floats sum) {
  store(out, multiply_add(load(out), load(rescale), sum));
}
inline void add_to(double* out, const double* rescale, Floats sum) {
  store(out, multiply_add(load(out), load(rescale), low_doubles(sum)));
  store(out + double_width, multiply_add(load(out + double_width), load(rescale + double_width), high_doubles(sum)));
}

// Keys whose weighted values are summed in float, at most, where the sums of all keys are double.
constexpr int64_t float_sum_keys = 64;

// A strip of values from some key on: steps of packed_keys keys lie step_pitch apart.
struct Strip {
  const float* at;
  int64_t key;  // counted from a multiple of float_sum_keys
  int64_t step_pitch;
};

// out[c][row] = out[c][row] * rescale[row] + sum over keys of v[key][c] * weights[key][row], for one strip of columns
// and at most a chunk of keys. Where out is double, a chunk's halves are summed apart, and joined before they are
// converted, because that takes seven instructions for one of adding.
// skip_zeros: a weight of 0 hides the key even where v is infinite or NaN.
template <typename Sum, int Vecs, bool skip_zeros>
ATTUNE_APART void value_strip(Strip v, int64_t keys, const float* weights, const Sum* rescale, Sum* out) {
  constexpr int rows = Vecs * width;
  Floats sum[strip_columns][Vecs] = {};
  alignas(vector_bytes) float first[strip_columns * rows];
  bool halved = false;
  while (keys > 0) {
    const int64_t left = packed_keys - v.key % packed_keys;  // of the step
    const int64_t count = left < keys ? left : keys;
    for (int64_t k = 0; k < count; ++k, weights += rows) {
      Floats weight[Vecs];
      ATTUNE_UNROLL
      for (int i = 0; i < Vecs; ++i) weight[i] = load(weights + i * width);
      ATTUNE_UNROLL
      for (int c = 0; c < strip_columns; ++c) {
        const Floats value = splat(v.at[k * strip_columns + c]);
        ATTUNE_UNROLL
        for (int i = 0; i < Vecs; ++i) {
          Floats seen = value;
          if constexpr (skip_zeros) seen = weight[i] == 0.0f ? Floats{} : value;
          sum[c][i] = multiply_add(seen, weight[i], sum[c][i]);
        }
      }
    }
    v.at += v.step_pitch - (packed_keys - left) * strip_columns;
    v.key += count;
    keys -= count;
    if (sizeof(Sum) == sizeof(double) && keys > 0 && v.key % float_sum_keys == 0) {
      ATTUNE_UNROLL
      for (int c = 0; c < strip_columns; ++c) {
        ATTUNE_UNROLL
        for (int i = 0; i < Vecs; ++i) {
          store(first + c * rows + i * width, sum[c][i]);
          sum[c][i] = Floats{};
        }
      }
      // Kept from the compiler, which would have registers for both halves, and not enough for either.
      asm volatile("" : : "r"(first) : "memory");
      halved = true;
    }
  }
  if (sizeof(Sum) == sizeof(double) && halved) {
    ATTUNE_UNROLL
    for (int c = 0; c < strip_columns; ++c) {
      ATTUNE_UNROLL
      for (int i = 0; i < Vecs; ++i) sum[c][i] += load(first + c * rows + i * width);
    }
  }
  ATTUNE_UNROLL
  for (int c = 0; c < strip_columns; ++c) {
    ATTUNE_UNROLL
    for (int i = 0; i < Vecs; ++i) add_to(out + c * rows + i * width, rescale + i * width, sum[c][i]);
  }
}

// All strips, from the first one on.
template <typename Sum, int Vecs>
void value_block(Strip v, int64_t strips, int64_t keys, const float* weights, const Sum* rescale, bool skip_zeros,
                 Sum* out) {
  for (int64_t i = 0; i < strips; ++i, v.at += strip_pitch, out += strip_columns * Vecs * width) {
    if (skip_zeros)
      value_strip<Sum, Vecs, true>(v, keys, weights, rescale, out);
    else
      value_strip<Sum, Vecs, false>(v, keys, weights, rescale, out);
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
