// Few rows of bf16 (rows.inl.hpp) by instructions that multiply pairs and add up their products: half as many as in
// float32, and nothing to convert.
//
// Pairs of scores are neighbouring channels, as they lie in memory. Pairs of values are neighbouring keys, even ones
// first: their rows of V are interleaved, and weights rounded to bf16. The instructions take numbers below 2^-126 for
// 0, and 0 times what is not finite for NaN, like those of the tile unit.
#pragma once

#include "cpu/level/ahead.inl.hpp"
#include "cpu/level/tile_pack_bf16.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Adds one load of each key times the same channels of R rows.
template <int R>
ATTUNE_INLINE void add_score_pairs(const char* const (&k)[width / R], int64_t d, int64_t count, const float* q,
                                   int64_t q_pitch, Floats (&sum)[width]) {
  ATTUNE_UNROLL
  for (int j = 0; j < width / R; ++j) {
    const auto key = bits_as<__m512bh>(load_pairs(k[j] + d * 2, count));
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r) {
      const auto row = load_bytes<__m512bh>(q + r * q_pitch + d);
      Floats& to = sum[r * (width / R) + j];
      to = _mm512_dpbf16_ps(to, key, row);
    }
  }
}

// Eight rows are the lanes of half a vector instead, and nothing is left to be summed across lanes: a pair of channels
// of a key meets that of all rows. q has pairs of channels x 8 rows.
constexpr int lane_rows = 8;

inline void put_pairs_of_row(Words pairs, int64_t row, float* q) {
  ATTUNE_UNROLL
  for (int i = 0; i < width; ++i) q[i * lane_rows + row] = bits_as<Floats>(pairs)[i];
}

// x[r][i] = q[r] . k[i] for 8 rows and up to 8 keys, the first of them at `k`, `step` bytes apart. x is written for 8.
inline void score_eight_keys(const char* k, int64_t step, int64_t keys, int64_t dim, const float* q, float* x) {
  const char* key[8];
  for (int j = 0; j < 8; ++j) key[j] = k + smaller_of(j, keys - 1) * step;
  __m256 sum[8] = {}, sum_of_others[8] = {};  // two chains of sums for each key
  const auto add = [&](int64_t channel, int count, __m256(&to)[8]) {
    const auto of_rows = load_bytes<__m256bh>(q + channel / 2 * lane_rows);
    ATTUNE_UNROLL
    for (int j = 0; j < 8; ++j) {
      int pair = 0;
      __builtin_memcpy(&pair, key[j] + channel * 2, static_cast<size_t>(count) * 2);
      to[j] = _mm256_dpbf16_ps(to[j], of_rows, bits_as<__m256bh>(_mm256_set1_epi32(pair)));
    }
  };
  int64_t d = 0;
  for (; d + 4 <= dim; d += 4) {
    add(d, 2, sum);
    add(d + 2, 2, sum_of_others);
  }
  if (d + 2 <= dim) {
    add(d, 2, sum);
    d += 2;
  }
  if (d < dim) add(d, 1, sum_of_others);
  ATTUNE_UNROLL
  for (int j = 0; j < 8; ++j) sum[j] += sum_of_others[j];
  transpose(sum);
  ATTUNE_UNROLL
  for (int r = 0; r < 8; ++r) store_bytes(x + r * key_alignment, sum[r]);
}

inline void row_scores_in_lanes(const Problem& p, const char* k, int64_t keys, RowsAhead& ahead, const float* q,
                                float* x) {
  const int64_t step = p.k.row * 2;
  for (int64_t i = 0; i < keys; i += 8) {
    for (int64_t j = i; j < smaller_of(i + 8, keys); ++j) ahead.fetch();
    score_eight_keys(k + i * step, step, keys - i, p.dim_qk, q, x + i);
  }
}

// Rounds a row's weights of `keys` keys, after which zeros come up to a multiple of 32. Returns the sums of what they
// are then, to be added.
inline Floats round_weights(float* weights, int64_t keys, uint16_t* rounded) {
  const int64_t padded = round_up(keys, 2 * width);
  for (int64_t i = keys; i < padded; ++i) weights[i] = 0;
  Floats total{};
  for (int64_t i = 0; i < padded; i += 2 * width) {
    const auto pairs = bits_as<Words>(_mm512_cvtne2ps_pbh(load(weights + i + width), load(weights + i)));
    store_bytes(rounded + i, pairs);
    total += bits_as<Floats>(pairs << 16) + bits_as<Floats>(pairs & 0xffff0000u);
  }
  return total;
}

// Two vectors of sums, of 32 columns: keys are interleaved within quarters of a vector, so that `low` has the first
// four of each eight columns, and `high` the others.
inline void put_in_order(Floats low, Floats high, float* to) {
  store(to, __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23));
  store(to + width, __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31));
}

// Adds weights times values of R rows, `keys` keys and Loads loads of 32 columns; `load(key, c)` gives load c of a key.
template <int R, int Loads, typename Load>
ATTUNE_INLINE void add_value_pairs(const uint16_t* weights, int64_t keys, const Load& load,
                                   Floats (&sum)[R][2 * Loads]) {
  for (int64_t i = 0; i < keys; i += 2) {
    Words low[Loads], high[Loads];
    ATTUNE_UNROLL
    for (int c = 0; c < Loads; ++c) {
      const auto even = bits_as<__m512i>(load(i, c));
      const auto odd = i + 1 < keys ? bits_as<__m512i>(load(i + 1, c)) : __m512i{};
      low[c] = bits_as<Words>(_mm512_unpacklo_epi16(even, odd));
      high[c] = bits_as<Words>(_mm512_unpackhi_epi16(even, odd));
    }
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r) {
      int pair;
      __builtin_memcpy(&pair, weights + r * key_alignment + i, sizeof pair);
      const auto weight = bits_as<__m512bh>(_mm512_set1_epi32(pair));
      ATTUNE_UNROLL
      for (int c = 0; c < Loads; ++c) {
        sum[r][2 * c] = _mm512_dpbf16_ps(sum[r][2 * c], bits_as<__m512bh>(low[c]), weight);
        sum[r][2 * c + 1] = _mm512_dpbf16_ps(sum[r][2 * c + 1], bits_as<__m512bh>(high[c]), weight);
      }
    }
  }
}

// Where sums go, and what those from before are multiplied by.
struct RowSums {
  float* out;
  int64_t pitch;
  const float* rescale;

  // Vector c of row r, after `added`.
  ATTUNE_INLINE Floats after(int r, int c, Floats added) const {
    return multiply_add(load(out + r * pitch + c * width), splat(rescale[r]), added);
  }
};

// The same where sums, `after` all that was added, may be wrong because of special values: those are 0 in the products,
// and added apart where their weight is not 0. All other sums stay as they are, so that none depends on its neighbours.
template <int R, int Loads, typename Load>
[[gnu::noinline]] void add_value_pairs_again(const uint16_t* weights, int64_t keys, const Load& load, RowSums sums,
                                             Floats (&after)[R][2 * Loads]) {
  bool needed = false;
  for (int64_t i = 0; i < keys && !needed; ++i)
    for (int c = 0; c < Loads; ++c) needed |= special_pairs(load(i, c)) != 0;
  if (!needed) return;

  Floats again[R][2 * Loads] = {};
  const auto load_plain = [&](int64_t key, int c) {
    const Words values = load(key, c);
    return bits_as<Words>(_mm512_maskz_mov_epi16(~special_pairs(values), bits_as<__m512i>(values)));
  };
  add_value_pairs<R, Loads>(weights, keys, load_plain, again);
  for (int64_t i = 0; i < keys; ++i) {
    for (int c = 0; c < Loads; ++c) {
      const Words values = load(i, c);
      const auto special = _mm512_maskz_mov_epi16(special_pairs(values), bits_as<__m512i>(values));
      const auto low = bits_as<Floats>(_mm512_unpacklo_epi16(__m512i{}, special));
      const auto high = bits_as<Floats>(_mm512_unpackhi_epi16(__m512i{}, special));
      for (int r = 0; r < R; ++r) {
        const auto weight = bits_as<float>(uint32_t{weights[r * key_alignment + i]} << 16);
        if (weight == 0) continue;
        again[r][2 * c] += weight * low;
        again[r][2 * c + 1] += weight * high;
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < 2 * Loads; ++c)
      after[r][c] = may_be_wrong(after[r][c]) ? sums.after(r, c, again[r][c]) : after[r][c];
}

// Whether sums of the first `rows` rows may be wrong; nobody reads those of others. Columns past the last load's `tail`
// are 0.
template <int R, int Loads>
ATTUNE_INLINE bool any_may_be_wrong(const Floats (&sum)[R][2 * Loads], int rows, int64_t tail) {
  const Ints low_column{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};
  const auto last = static_cast<int32_t>(tail);
  Ints wrong[2 * Loads] = {};
  ATTUNE_UNROLL
  for (int r = 0; r < R; ++r) {
    if (r >= rows) break;
    ATTUNE_UNROLL
    for (int c = 0; c < 2 * Loads; ++c) wrong[c] |= may_be_wrong(sum[r][c]);
  }
  wrong[2 * Loads - 2] &= low_column < last;
  wrong[2 * Loads - 1] &= low_column + 4 < last;
  Ints all{};
  ATTUNE_UNROLL
  for (const Ints& lanes : wrong) all |= lanes;
  return any(all);
}

// out[r] = out[r] * rescale[r] + sum over keys of weights[r][i] * v[i], for R rows, of which `rows` are in use, and
// Loads loads of columns. The last load has `tail` elements, if fewer than a full one.
template <int R, int Loads>
void row_values_in_pairs(const char* v, int64_t step, int64_t keys, int64_t tail, RowsAhead* ahead, int rows,
                         const uint16_t* weights, RowSums sums) {
  const auto load_values = [=](int64_t key, int c) {
    return load_pairs(v + key * step + c * tile_row_bytes, c + 1 < Loads ? 2 * width : tail);
  };
  Floats sum[R][2 * Loads] = {};
  add_value_pairs<R, Loads>(
      weights, keys,
      [&](int64_t key, int c) {
        if (c == 0 && ahead != nullptr) ahead->fetch();
        return load_values(key, c);
      },
      sum);
  const auto for_each = [](const auto& body) {
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r) {
      ATTUNE_UNROLL
      for (int c = 0; c < 2 * Loads; ++c) body(r, c);
    }
  };
  for_each([&](int r, int c) { sum[r][c] = sums.after(r, c, sum[r][c]); });
  if (any_may_be_wrong<R, Loads>(sum, rows, tail)) [[unlikely]] {
    Floats after[R][2 * Loads];  // a copy: what others get the address of is in no register
    for_each([&](int r, int c) { after[r][c] = sum[r][c]; });
    add_value_pairs_again<R, Loads>(weights, keys, load_values, sums, after);
    for_each([&](int r, int c) { sum[r][c] = after[r][c]; });
  }
  for_each([&](int r, int c) { store(sums.out + r * sums.pitch + c * width, sum[r][c]); });
}

// The same for the columns from `column` on, as many loads at a time as there are columns and registers for.
template <int R, int Loads = 8 / R>
void row_values_in_pairs_from(int64_t column, const Problem& p, const char* v, int64_t keys, RowsAhead* ahead, int rows,
                              const uint16_t* weights, RowSums sums) {
  constexpr int64_t columns = 2 * width;
  for (; column + (Loads - 1) * columns < p.dim_v; column += Loads * columns) {
    const int64_t tail = smaller_of(columns, p.dim_v - column - (Loads - 1) * columns);
    row_values_in_pairs<R, Loads>(v + column * 2, p.v.row * 2, keys, tail, ahead, rows, weights,
                                  {sums.out + column, sums.pitch, sums.rescale});
    ahead = nullptr;
  }
  if constexpr (Loads > 1) row_values_in_pairs_from<R, Loads / 2>(column, p, v, keys, ahead, rows, weights, sums);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
