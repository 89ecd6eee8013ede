// Operands of float16 and float32: each number as the sum of two or three bf16.
#pragma once

#include "cpu/level/tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// The bf16 parts of each lane, in the upper halves. A float16 has 11 significant bits: what is cut off after the first
// 8 is the second part, exactly. A float32 is rounded, and what is left of it, and after that nothing is left. What is
// not finite has no parts, and what becomes of it does not matter: scores with it are computed anew.
template <Format format>
void split(Floats v, Words (&to)[format.parts]) {
  ATTUNE_UNROLL
  for (int i = 0; i < format.parts; ++i) {
    to[i] = bits_as<Words>(v) + (format.dtype == Dtype::f32 ? 0x8000u : 0u);
    v -= bits_as<Floats>(to[i] & 0xffff0000u);
  }
}

// The parts of 32 neighbouring elements.
template <Format format>
void split_row(const Floats (&v)[2], Words (&to)[format.parts]) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  Words low[format.parts], high[format.parts];
  split<format>(v[0], low);
  split<format>(v[1], high);
  ATTUNE_UNROLL
  for (int i = 0; i < format.parts; ++i)
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
template <Format format>
bool split_k_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                  char* to) {
  const Problem& p = *call.problem;
  const char* k = element(call.operands->in(Operand::k), p.dtype, key_offset(p, p.k, block, from));
  Ints special{};
  for (int64_t key = 0; key < step_keys; ++key, k += p.k.row * size_of<format.dtype>) {
    char* const tile = to + key / tile_side * layout.qk_steps * tile_bytes + key % tile_side * tile_row_bytes;
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words part[format.parts] = {};
      if (key < keys) {
        Floats value[2];
        load_32<format.dtype>(k, step * step_channels, p.dim_qk, value);
        for (int64_t i = 0; i < step_channels * size_of<format.dtype>; i += 64)
          fetch_later(k + (step_keys * p.k.row + step * step_channels) * size_of<format.dtype> + i);
        special |= is_unfit_for_scores<format>(value[0]) | is_unfit_for_scores<format>(value[1]);
        split_row<format>(value, part);
      }
      for (int i = 0; i < format.parts; ++i) store_bytes(tile + (i * 2 * layout.qk_steps + step) * tile_bytes, part[i]);
    }
  }
  return any(special);
}

// The same keys' values, transposed; what is special in them becomes 0. True if something was.
template <Format format>
bool split_v_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                  char* to) {
  const Problem& p = *call.problem;
  const char* v = element(call.operands->in(Operand::v), p.dtype, key_offset(p, p.v, block, from));
  Ints special{};
  for (int64_t tile = 0; tile < 2 * layout.v_strips; ++tile) {
    const int64_t column = tile * tile_side;
    Words rows[format.parts][tile_side];
    for (int64_t pair = 0; pair < tile_side; ++pair) {
      Words part[2][format.parts] = {};
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t key = 2 * pair + i;
        if (key >= keys || column >= p.dim_v) continue;
        const Floats value = load_some<format.dtype>(v + key * p.v.row * size_of<format.dtype>, column, p.dim_v);
        fetch_later(v + ((key + step_keys) * p.v.row + column) * size_of<format.dtype>);
        const Ints unfit = is_special<format>(value);
        special |= unfit;
        split<format>(unfit ? Floats{} : value, part[i]);
      }
      for (int i = 0; i < format.parts; ++i) rows[i][pair] = upper_halves(part[0][i], part[1][i]);
    }
    for (int i = 0; i < format.parts; ++i) transpose(rows[i], to + i * layout.v_part() + tile * tile_bytes);
  }
  return any(special);
}

// The rows [first, first + count) of a block as tiles of Q, zeros up to 32 rows. Returns a bit for each row of which
// a part product cannot give the scores.
template <Format format>
uint32_t split_q(const Call& call, const Block& block, const TileLayout& layout, int first, int count, char* to) {
  const Problem& p = *call.problem;
  uint32_t special = 0;
  for (int half = 0; half < 2; ++half) {
    const char* rows[tile_side];
    Ints unfit[tile_side] = {};
    for (int i = 0; i < tile_side; ++i) rows[i] = q_row(call, block, first, half * tile_side + i, count);
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words tile[format.parts][tile_side];
      for (int i = 0; i < tile_side; ++i) {
        Words part[format.parts] = {};
        if (rows[i] != nullptr) {
          Floats value[2];
          load_32<format.dtype>(rows[i], step * step_channels, p.dim_qk, value);
          unfit[i] |= is_unfit_for_scores<format>(value[0]) | is_unfit_for_scores<format>(value[1]);
          for (Floats& v : value) v *= call.q_factor;
          split_row<format>(value, part);
        }
        for (int j = 0; j < format.parts; ++j) tile[j][i] = part[j];
      }
      for (int part = 0; part < format.parts; ++part)
        transpose(tile[part], to + ((part * layout.qk_steps + step) * 2 + half) * tile_bytes);
    }
    for (int i = 0; i < tile_side; ++i)
      if (any(unfit[i])) special |= 1u << (half * tile_side + i);
  }
  return special;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
