// The two products of the block path on the tile unit.
#pragma once

#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

using ProductUnit = Tiles;

inline void zero_sums(Tiles& tiles) {
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.zero<2>();
  tiles.zero<3>();
}

// What happens between two products: the vectors go on with their work, or nothing does.
ATTUNE_INLINE void go_on(Tiles& tiles, Idle&, int64_t) { tiles.pause(); }
template <typename Work>
ATTUNE_INLINE void go_on(Tiles& tiles, Work& work, int64_t pairs) {
  pairs > 0 ? work.advance(pairs) : tiles.pause();
}

// A tile of the left operand. One that is read in place, in rows apart, takes twice as long past the L1 cache.
template <int t>
ATTUNE_INLINE void load_left(Tiles& tiles, const char* from, int64_t pitch) {
  if (pitch == tile_row_bytes)
    tiles.stream<t>(from, tile_row_bytes);
  else
    tiles.load<t>(from, pitch);
}

// Adds the product of two by two tiles to tiles 0 to 3: 4 and 5 by 6 and 7. New ones are loaded right before their
// first use. Work goes on after each product, or by half after the second and the last.
template <bool new_a, bool new_b, bool after_each, typename Work>
ATTUNE_INLINE void multiply_tiles(Tiles& tiles, const LeftOperand& a, const char* b, Work& work, int64_t pairs) {
  if constexpr (new_a) load_left<4>(tiles, a.at, a.pitch);
  if constexpr (new_b) tiles.load<6>(b, tile_row_bytes);
  tiles.multiply_add<0, 4, 6>();
  after_each ? go_on(tiles, work, pairs) : tiles.pause();
  if constexpr (new_b) tiles.load<7>(b + tile_bytes, tile_row_bytes);
  tiles.multiply_add<1, 4, 7>();
  go_on(tiles, work, after_each ? pairs : pairs / 2);
  if constexpr (new_a) load_left<5>(tiles, a.at + a.half, a.pitch);
  tiles.multiply_add<2, 5, 6>();
  after_each ? go_on(tiles, work, pairs) : tiles.pause();
  tiles.multiply_add<3, 5, 7>();
  go_on(tiles, work, after_each ? pairs : pairs - pairs / 2);
}

// Adds the product of operands of one part or more. Of two, low by low is left out unless asked for; of three, what is
// below 2^-24 of the whole. Neighbours in the order share an operand.
template <int Parts, bool low_by_low, typename Work>
ATTUNE_INLINE void multiply_step(Tiles& tiles, const LeftOperand& a, const char* b, int64_t b_part, Work& work,
                                 int64_t pairs) {
  if constexpr (Parts == 1) return multiply_tiles<true, true, true>(tiles, a, b, work, pairs);
  const auto left = [&](int part) { return LeftOperand{a.at + part * a.part, a.pitch, a.half, a.part}; };
  const auto right = [&](int part) { return b + part * b_part; };
  if constexpr (Parts == 2) {
    if constexpr (low_by_low) multiply_tiles<true, true, false>(tiles, left(1), right(1), work, pairs);
    multiply_tiles<!low_by_low, true, false>(tiles, left(1), right(0), work, pairs);
    multiply_tiles<true, false, false>(tiles, left(0), right(0), work, pairs);
    multiply_tiles<false, true, false>(tiles, left(0), right(1), work, pairs);
  } else {
    multiply_tiles<true, true, false>(tiles, left(2), right(0), work, pairs);
    multiply_tiles<true, false, false>(tiles, left(1), right(0), work, pairs);
    multiply_tiles<false, true, false>(tiles, left(1), right(1), work, pairs);
    multiply_tiles<true, false, false>(tiles, left(0), right(1), work, pairs);
    multiply_tiles<false, true, false>(tiles, left(0), right(2), work, pairs);
    multiply_tiles<false, true, false>(tiles, left(0), right(0), work, pairs);
  }
}

// How many pairs of weights go beside each product of a step's scores, or, in parts, beside each four, so that they
// last as long.
template <Format format>
int64_t pairs_at_a_time(const TileLayout& layout) {
  const int64_t times = (format.parts == 3 ? 6 : 4) * layout.qk_steps;
  return (step_pairs + times - 1) / times;
}

// The first product: x of a group's keys [key, key + 32). All of a float16 counts.
template <Format format, typename Work>
ATTUNE_INLINE void tile_scores(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout,
                               const Group& group, int64_t key, const char* last_keys, float* x, Work& work) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  const int64_t pairs = pairs_at_a_time<format>(layout);
  int64_t next;
  LeftOperand k = keys_at(call, block, layout, key, last_keys, next);
  zero_sums(tiles);
  const char* q = group.q;
  for (int64_t step = 0; step < layout.qk_steps; ++step, k.at += next, q += 2 * tile_bytes)
    multiply_step<format.parts, format.dtype == Dtype::f16>(tiles, k, q, layout.qk_steps * 2 * tile_bytes, work, pairs);
  tiles.store<0>(x, pitch);
  tiles.store<1>(x + tile_side, pitch);
  tiles.store<2>(x + tile_side * group_rows, pitch);
  tiles.store<3>(x + tile_side * group_rows + tile_side, pitch);
}

// The same for bf16 with Q in tiles 4 to 7, where hold_q() put it: it has no more than 64 channels then.
inline bool can_hold_q(const TileLayout& layout) { return layout.parts == 1 && layout.qk_steps == 2; }
inline void hold_q(Tiles& tiles, const Group& group) {
  tiles.load<4>(group.q, tile_row_bytes);
  tiles.load<5>(group.q + tile_bytes, tile_row_bytes);
  tiles.load<6>(group.q + 2 * tile_bytes, tile_row_bytes);
  tiles.load<7>(group.q + 3 * tile_bytes, tile_row_bytes);
}
template <typename Work>
ATTUNE_INLINE void scores_of_held_q(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout,
                                    int64_t key, const char* last_keys, float* x, Work& work) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  const int64_t pairs = pairs_at_a_time<bf16_whole>(layout);
  int64_t next;
  LeftOperand k = keys_at(call, block, layout, key, last_keys, next);
  for (int half = 0; half < 2; ++half, k.at += k.half, x += tile_side * group_rows) {
    tiles.zero<0>();
    tiles.zero<1>();
    load_left<2>(tiles, k.at, k.pitch);
    tiles.multiply_add<0, 2, 4>();
    go_on(tiles, work, pairs);
    tiles.multiply_add<1, 2, 5>();
    go_on(tiles, work, pairs);
    load_left<3>(tiles, k.at + next, k.pitch);
    tiles.multiply_add<0, 3, 6>();
    go_on(tiles, work, pairs);
    tiles.multiply_add<1, 3, 7>();
    go_on(tiles, work, pairs);
    tiles.store<0>(x, pitch);
    tiles.store<1>(x + tile_side, pitch);
  }
}

// One of the two. holds_q: whether the tiles hold the group's Q from the step before. work: what vectors compute
// meanwhile; they need not get to its end.
template <Format format, typename Work>
ATTUNE_INLINE void score_step(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout,
                              const Group& group, int64_t key, const char* last_keys, float* x, bool& holds_q,
                              Work& work) {
  if (!can_hold_q(layout)) return tile_scores<format>(tiles, call, block, layout, group, key, last_keys, x, work);
  if (!holds_q) hold_q(tiles, group);
  holds_q = true;
  scores_of_held_q(tiles, call, block, layout, key, last_keys, x, work);
}

// The second product: O^T += V^T P^T over the keys [from, to), whose weights begin at `weights`.
template <int Parts>
void value_steps(Tiles& tiles, const Block& block, const TileLayout& layout, Group& group, int64_t from, int64_t to,
                 const char* weights) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  for (int64_t strip = 0; strip < layout.v_strips; ++strip) {
    float* out = group.rows.out + strip * 2 * tile_side * group_rows;
    if (group.has_out) {
      tiles.load<0>(out, pitch);
      tiles.load<1>(out + tile_side, pitch);
      tiles.load<2>(out + tile_side * group_rows, pitch);
      tiles.load<3>(out + tile_side * group_rows + tile_side, pitch);
    } else {
      zero_sums(tiles);
    }
    LeftOperand v;
    v.at = packed_step(block, layout, from) + layout.v_at() + strip * 2 * tile_bytes;
    v.part = layout.v_part();
    const char* at = weights;
    Idle idle;
    for (int64_t key = from; key < to; key += step_keys) {
      multiply_step<Parts, false>(tiles, v, at, 2 * tile_bytes, idle, 0);
      v.at += layout.step_bytes();
      at += Parts * 2 * tile_bytes;
    }
    tiles.store<0>(out, pitch);
    tiles.store<1>(out + tile_side, pitch);
    tiles.store<2>(out + tile_side * group_rows, pitch);
    tiles.store<3>(out + tile_side * group_rows + tile_side, pitch);
  }
  group.has_out = true;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
