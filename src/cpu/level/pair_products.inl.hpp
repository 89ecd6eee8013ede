// The two products of the block path without a tile unit, by instructions that multiply pairs of bf16 (AVX512_BF16).
// The operands are those of the tile unit, and so is what these instructions do with numbers below 2^-126: they are 0.
#pragma once

#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

struct ProductUnit {};

// Rows of the left operand that are multiplied by 32 of the right one in registers.
constexpr int pair_rows = 8;
using PairSums = Floats[pair_rows][group_vecs];

// Adds the products of 16 pairs.
ATTUNE_INLINE void add_pairs(const char* left, int64_t left_pitch, const char* right, PairSums& sum) {
  for (int64_t pair = 0; pair < tile_side; ++pair) {
    Words b[group_vecs];
    ATTUNE_UNROLL
    for (int v = 0; v < group_vecs; ++v) b[v] = load_bytes<Words>(right + v * tile_bytes + pair * tile_row_bytes);
    ATTUNE_UNROLL
    for (int i = 0; i < pair_rows; ++i) {
      uint32_t word;
      __builtin_memcpy(&word, left + i * left_pitch + pair * 4, sizeof word);
      const Words a = Words{} + word;
      ATTUNE_UNROLL
      for (int v = 0; v < group_vecs; ++v)
        sum[i][v] = _mm512_dpbf16_ps(sum[i][v], bits_as<__m512bh>(a), bits_as<__m512bh>(b[v]));
    }
  }
}

ATTUNE_INLINE void store_sums(const PairSums& sum, float* to) {
  ATTUNE_UNROLL
  for (int i = 0; i < pair_rows; ++i) {
    ATTUNE_UNROLL
    for (int v = 0; v < group_vecs; ++v) store(to + i * group_rows + v * width, sum[i][v]);
  }
}

// The first product: x of a group's keys [key, key + 32). Nothing is gained by other work in between.
template <Format format>
void score_step(ProductUnit&, const Call& call, const Block& block, const TileLayout& layout, const Group& group,
                int64_t key, const char* last_keys, float* x, bool&, auto&) {
  int64_t next;
  const LeftOperand k = keys_at(call, block, layout, key, last_keys, next);
  for (int64_t row = 0; row < step_keys; row += pair_rows) {
    const char* left = k.at + row / tile_side * k.half + row % tile_side * k.pitch;
    PairSums sum = {};
    for (int64_t step = 0; step < layout.qk_steps; ++step)
      add_pairs(left + step * next, k.pitch, group.q + step * 2 * tile_bytes, sum);
    store_sums(sum, x + row * group_rows);
  }
}

// The second product: O^T += V^T P^T over the keys [from, to), whose weights begin at `weights`.
template <int Parts>
void value_steps(ProductUnit&, const Block& block, const TileLayout& layout, Group& group, int64_t from, int64_t to,
                 const char* weights) {
  static_assert(Parts == 1);
  const int64_t steps = (to - from) / step_keys;
  for (int64_t column = 0; column < layout.v_strips * 2 * tile_side; column += pair_rows) {
    const char* const left = packed_step(block, layout, from) + layout.v_at() + column * tile_row_bytes;
    float* const out = group.rows.out + column * group_rows;
    PairSums sum = {};
    if (group.has_out) {
      ATTUNE_UNROLL
      for (int i = 0; i < pair_rows; ++i) {
        ATTUNE_UNROLL
        for (int v = 0; v < group_vecs; ++v) sum[i][v] = load(out + i * group_rows + v * width);
      }
    }
    for (int64_t step = 0; step < steps; ++step)
      add_pairs(left + step * layout.step_bytes(), tile_row_bytes, weights + step * 2 * tile_bytes, sum);
    store_sums(sum, out);
  }
  group.has_out = true;
}

double multiply_pairs_rounds(int64_t rounds) {
  constexpr int chains = 16;
  Floats sum[chains];
  for (int i = 0; i < chains; ++i) sum[i] = splat(static_cast<float>(i));
  const Words ones = Words{} + 0x3f803f80u;
  for (int64_t round = 0; round < rounds; ++round) {
    ATTUNE_UNROLL
    for (int i = 0; i < chains; ++i)
      sum[i] = _mm512_dpbf16_ps(sum[i], bits_as<__m512bh>(ones), bits_as<__m512bh>(ones));
  }
  Floats total{};
  for (int i = 0; i < chains; ++i) total += sum[i];
  asm volatile("" : : "m"(total));
  return 4.0 * chains * width * static_cast<double>(rounds);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
