// Operands of float16, and of float32 where 16 bits of it will do: each number as the sum of two bf16.
#pragma once

#include "cpu/level/tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// The two bf16 parts of each lane, in the upper halves. A float16 has 11 significant bits: what is cut off after the
// first 8 is the second part, exactly. A float32 is rounded, twice. What is not finite has no second part, and what
// becomes of it does not matter: scores with it are computed anew.
template <Dtype dtype>
void split(Floats v, Words (&to)[2]) {
  to[0] = dtype == Dtype::f16 ? bits_as<Words>(v) : rounded_to_bf16(v);
  const Words rest = bits_as<Words>(v - bits_as<Floats>(to[0] & 0xffff0000u));
  to[1] = dtype == Dtype::f16 ? rest : rest + 0x8000u;
}

// The parts of 32 neighbouring elements.
template <Dtype dtype>
void split_row(const Floats (&v)[2], Words (&to)[2]) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  Words low[2], high[2];
  split<dtype>(v[0], low);
  split<dtype>(v[1], high);
  for (int i = 0; i < 2; ++i)
    to[i] = bits_as<Words>(__builtin_shufflevector(bits_as<AllHalves>(low[i]), bits_as<AllHalves>(high[i]), 1, 3, 5, 7,
                                                   9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41,
                                                   43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63));
}

// Elements i to i + 16 of a row of `count`, zeros past its end.
template <Dtype dtype>
Floats load_some(const char* row, int64_t i, int64_t count) {
  const char* const from = row + i * size_of<dtype>;
  return i + width <= count ? load_as_floats<dtype>(from) : load_as_floats<dtype>(from, count - i);
}

// Elements i to i + 32 of a row of `count`, zeros past its end.
template <Dtype dtype>
void load_32(const char* row, int64_t i, int64_t count, Floats (&to)[2]) {
  to[0] = load_some<dtype>(row, i, count);
  to[1] = i + width < count ? load_some<dtype>(row, i + width, count) : Floats{};
}

// `keys` <= 32 keys from `from`, then zeros, as tiles of K. True if a part product cannot give their scores.
template <Dtype dtype>
bool split_k_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                  char* to) {
  const Problem& p = *call.problem;
  const char* k = element(call.args->k, p.dtype, key_offset(p, p.k, block, from));
  Ints special{};
  for (int64_t key = 0; key < step_keys; ++key, k += p.k.row * size_of<dtype>) {
    char* const tile = to + key / tile_side * layout.qk_steps * tile_bytes + key % tile_side * tile_row_bytes;
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words part[2] = {};
      if (key < keys) {
        Floats value[2];
        load_32<dtype>(k, step * step_channels, p.dim_qk, value);
        for (int64_t i = 0; i < step_channels * size_of<dtype>; i += 64)
          fetch_later(k + (step_keys * p.k.row + step * step_channels) * size_of<dtype> + i);
        special |= is_not_finite(value[0]) | is_not_finite(value[1]);
        split_row<dtype>(value, part);
      }
      for (int i = 0; i < 2; ++i) store_bytes(tile + (i * 2 * layout.qk_steps + step) * tile_bytes, part[i]);
    }
  }
  return any(special);
}

// The same keys' values, transposed; what is special in them becomes 0. True if something was.
template <Dtype dtype>
bool split_v_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                  char* to) {
  const Problem& p = *call.problem;
  const char* v = element(call.args->v, p.dtype, key_offset(p, p.v, block, from));
  Ints special{};
  for (int64_t tile = 0; tile < 2 * layout.v_strips; ++tile) {
    const int64_t column = tile * tile_side;
    Words rows[2][tile_side];
    for (int64_t pair = 0; pair < tile_side; ++pair) {
      Words part[2][2] = {};
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t key = 2 * pair + i;
        if (key >= keys || column >= p.dim_v) continue;
        const Floats value = load_some<dtype>(v + key * p.v.row * size_of<dtype>, column, p.dim_v);
        fetch_later(v + ((key + step_keys) * p.v.row + column) * size_of<dtype>);
        const Ints unfit = dtype == Dtype::f16 ? is_not_finite(value) : is_special(value);  // no float16 is that small
        special |= unfit;
        split<dtype>(unfit ? Floats{} : value, part[i]);
      }
      for (int i = 0; i < 2; ++i) rows[i][pair] = upper_halves(part[0][i], part[1][i]);
    }
    for (int i = 0; i < 2; ++i) transpose(rows[i], to + i * layout.v_part() + tile * tile_bytes);
  }
  return any(special);
}

// The rows [first, first + count) of a block as tiles of Q, zeros up to 32 rows. Returns a bit for each row that is not
// finite.
template <Dtype dtype>
uint32_t split_q(const Call& call, const Block& block, const TileLayout& layout, int first, int count, char* to) {
  const Problem& p = *call.problem;
  uint32_t special = 0;
  for (int half = 0; half < 2; ++half) {
    const char* rows[tile_side];
    Ints unfit[tile_side] = {};
    for (int i = 0; i < tile_side; ++i) rows[i] = q_row(call, block, first, half * tile_side + i, count);
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words tile[2][tile_side];
      for (int i = 0; i < tile_side; ++i) {
        Words part[2] = {};
        if (rows[i] != nullptr) {
          Floats value[2];
          load_32<dtype>(rows[i], step * step_channels, p.dim_qk, value);
          unfit[i] |= is_not_finite(value[0]) | is_not_finite(value[1]);
          for (Floats& v : value) v *= call.q_factor;
          split_row<dtype>(value, part);
        }
        tile[0][i] = part[0];
        tile[1][i] = part[1];
      }
      for (int part = 0; part < 2; ++part)
        transpose(tile[part], to + ((part * layout.qk_steps + step) * 2 + half) * tile_bytes);
    }
    for (int i = 0; i < tile_side; ++i)
      if (any(unfit[i])) special |= 1u << (half * tile_side + i);
  }
  return special;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
