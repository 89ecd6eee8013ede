// Operands of float16, and of float32 where 16 bits of it will do: each number as the sum of two bf16.
#pragma once

#include "cpu/level/tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// The two bf16 parts of each lane, in the low halves. A float16 has 11 significant bits: what is cut off after the
// first 8 is the second part, exactly. A float32 is rounded, twice.
template <Dtype dtype>
void split(Floats v, Words (&to)[2]) {
  to[0] = dtype == Dtype::f16 ? bits_as<Words>(v) >> 16 : __builtin_convertvector(bf16_from_floats(v), Words);
  const Words rest = bits_as<Words>(v - bits_as<Floats>(to[0] << 16));
  to[1] = is_not_finite(v) ? Words{} : (dtype == Dtype::f16 ? rest : rest + 0x8000u) >> 16;
}

// Elements i to i + 16 of a row of `count`, zeros past its end.
template <Dtype dtype>
Floats load_some(const char* row, int64_t i, int64_t count) {
  const char* const from = row + i * size_of<dtype>;
  return i + width <= count ? load_as_floats<dtype>(from) : load_as_floats<dtype>(from, count - i);
}

// `keys` <= 32 keys from `from`, then zeros, as tiles of K. True if a part product cannot give their scores.
template <Dtype dtype>
bool split_k_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                  char* to) {
  const Problem& p = *call.problem;
  const char* k = element(call.args->k, p.dtype, key_offset(p, p.k, block, from));
  Ints special{};
  for (int64_t key = 0; key < step_keys; ++key) {
    for (int64_t d = 0; d < layout.qk_steps * step_channels; d += width) {
      Floats value{};
      if (key < keys && d < p.dim_qk) value = load_some<dtype>(k + key * p.k.row * size_of<dtype>, d, p.dim_qk);
      special |= is_not_finite(value);
      Words part[2];
      split<dtype>(value, part);
      char* const at = to + (key / tile_side * layout.qk_steps + d / step_channels) * tile_bytes +
                       key % tile_side * tile_row_bytes + d % step_channels * 2;
      for (int i = 0; i < 2; ++i)
        store_bytes(at + i * 2 * layout.qk_steps * tile_bytes, __builtin_convertvector(part[i], Halves));
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
        const Ints unfit = is_special(value);
        special |= unfit;
        split<dtype>(unfit ? Floats{} : value, part[i]);
      }
      for (int i = 0; i < 2; ++i) rows[i][pair] = part[0][i] | part[1][i] << 16;
    }
    for (int i = 0; i < 2; ++i) transpose(rows[i], to + i * layout.v_part() + tile * tile_bytes);
  }
  return any(special);
}

// The rows [first, first + count) of a block as tiles of Q, zeros up to 32 rows; `rows` is room for 16 rows of floats.
// Returns a bit for each row that is not finite.
template <Dtype dtype>
uint32_t split_q(const Call& call, const Block& block, const TileLayout& layout, int first, int count, float* rows,
                 int64_t pitch, char* to) {
  uint32_t special = 0;
  const int64_t channels = layout.qk_steps * step_channels;
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < tile_side; ++i) {
      float* const row = rows + i * pitch;
      const int lane = half * tile_side + i;
      for (int64_t d = 0; d < channels; d += width) store(row + d, Floats{});
      if (lane >= count) continue;
      load_q_row(call, block, first + lane, row);
      Ints unfit{};
      for (int64_t d = 0; d < channels; d += width) unfit |= is_not_finite(load(row + d));
      if (any(unfit)) special |= 1u << lane;
    }
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words tile[2][tile_side];
      for (int i = 0; i < tile_side; ++i) {
        Words low[2], high[2];
        split<dtype>(load(rows + i * pitch + step * step_channels), low);
        split<dtype>(load(rows + i * pitch + step * step_channels + width), high);
        for (int part = 0; part < 2; ++part) {
          Halves halves[2] = {__builtin_convertvector(low[part], Halves), __builtin_convertvector(high[part], Halves)};
          tile[part][i] = load_bytes<Words>(halves);
        }
      }
      for (int part = 0; part < 2; ++part)
        transpose(tile[part], to + ((part * layout.qk_steps + step) * 2 + half) * tile_bytes);
    }
  }
  return special;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
