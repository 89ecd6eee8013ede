// The block path on the tile unit: S^T = K Q^T and O^T = V^T P^T in tiles, the softmax between them in vectors with the
// rows along the lanes, which leaves the weights in the very layout of the second product's operand.
//
// Scores become weights 32 keys at a time, so that they never leave the L1 cache; those of the next 32 are asked for
// first. The second product follows after a chunk of keys.
//
// A row's result does not depend on its neighbours: steps and chunks of keys lie at fixed multiples, a hidden key adds
// exact zeros, and a row whose reference stays is multiplied by exactly 1.
#pragma once

#include "cpu/level/block.inl.hpp"
#include "cpu/level/tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int tile_block_rows = max_task_rows;
constexpr int max_groups = tile_block_rows / group_rows;
constexpr int group_vecs = group_rows / width;
// How far scores may exceed the reference of the weights, as a power of 2, before sums are rescaled.
constexpr float most_excess = 8;

// 32 rows and their state between chunks. rows.largest is the reference of the weights.
struct Group {
  Tile<float> rows;
  char* q = nullptr;
  uint32_t special_rows = 0;      // not finite
  float* rounded_sums = nullptr;  // of bf16 weights, beside rows.sums of the weights before rounding
  // Of bf16 weights: how scores become distances from the highest weight (set_distances).
  float *origin = nullptr, *bound = nullptr;
  bool all_begun = false;  // every row has a reference
  bool some_far = false;   // some origin is not 0
  // Sums of what was packed as 0, like rows.out and apart from it: the tile unit would flush them to 0.
  float* special_out = nullptr;
  bool has_q = false;
  bool has_out = false, has_special_out = false;  // otherwise all sums are 0, and what is in memory means nothing
};

struct TileScratch {
  Group groups[max_groups];
  float* x[2] = {};            // the scores of two steps: 32 keys x 32 rows each
  char* weights = nullptr;     // of a chunk: steps x parts x 2 tiles
  float* bias = nullptr;       // of a step
  char* last_keys = nullptr;   // the last step of K, where it is not full and the others are read in place
  float* some_rows = nullptr;  // 16 rows of row_pitch, on their way out

  TileScratch(const Problem& p, const TileLayout& layout, Arena& arena) {
    for (float*& step : x) step = arena.take<float>(step_keys * group_rows);
    weights = arena.take<char>(layout.chunk_keys / step_keys * layout.parts * 2 * tile_bytes);
    for (Group& group : groups) {
      group.q = arena.take<char>(layout.parts * layout.qk_steps * 2 * tile_bytes);
      group.rows.out = arena.take<float>(layout.v_strips * 2 * tile_side * group_rows);
      group.special_out = arena.take<float>(layout.v_strips * 2 * tile_side * group_rows);
      group.rows.largest = arena.take<float>(group_rows);
      group.rows.sums = arena.take<float>(group_rows);
      group.rounded_sums = arena.take<float>(group_rows);
      group.origin = arena.take<float>(group_rows);
      group.bound = arena.take<float>(group_rows);
    }
    if ((p.features & ATTUNE_BIAS) != 0) bias = arena.take<float>(step_keys * group_rows);
    if (layout.k_in_place) last_keys = arena.take<char>(layout.k_bytes());
    some_rows = arena.take<float>(tile_side * row_pitch);
  }
};

inline const char* packed_step(const Block& block, const TileLayout& layout, int64_t key) {
  return block.packed + key / step_keys * layout.step_bytes();
}
inline StepHeader header_at(const Block& block, const TileLayout& layout, int64_t key) {
  StepHeader header;
  __builtin_memcpy(&header, packed_step(block, layout, key), sizeof header);
  return header;
}

// Two tiles of the left operand: rows `pitch` apart, the second tile `half` and the second part `part` further on.
struct LeftOperand {
  const char* at = nullptr;
  int64_t pitch = tile_row_bytes, half = tile_bytes, part = 0;
};

inline void zero_sums(Tiles& tiles) {
  tiles.zero<0>();
  tiles.zero<1>();
  tiles.zero<2>();
  tiles.zero<3>();
}

// Adds the product of two by two tiles to tiles 0 to 3. Of two parts, low by low is left out unless asked for.
template <int Parts, bool low_by_low>
void multiply_step(Tiles& tiles, const LeftOperand& a, const char* b, int64_t b_part) {
  const auto load_a = [&](int64_t part) {
    tiles.load<4>(a.at + part * a.part, a.pitch);
    tiles.load<5>(a.at + part * a.part + a.half, a.pitch);
  };
  const auto load_b = [&](int64_t part) {
    tiles.load<6>(b + part * b_part, tile_row_bytes);
    tiles.load<7>(b + part * b_part + tile_bytes, tile_row_bytes);
  };
  const auto multiply = [&] {
    tiles.multiply_add<0, 4, 6>();
    tiles.multiply_add<1, 4, 7>();
    tiles.multiply_add<2, 5, 6>();
    tiles.multiply_add<3, 5, 7>();
  };
  if constexpr (Parts == 2) {
    load_a(1);
    if constexpr (low_by_low) {
      load_b(1);
      multiply();
    }
    load_b(0);
    multiply();
    load_a(0);
    multiply();
    load_b(1);
    multiply();
  } else {
    load_a(0);
    load_b(0);
    multiply();
  }
}

// Where the keys [key, key + 32) lie as the left operand, and how far the next channels are.
inline LeftOperand keys_at(const Call& call, const Block& block, const TileLayout& layout, int64_t key,
                           const char* last_keys, int64_t& next) {
  const Problem& p = *call.problem;
  LeftOperand k;
  next = tile_bytes;
  if (layout.k_in_place && key + step_keys <= block.seq_k) {
    k.at = element(call.args->k, p.dtype, key_offset(p, p.k, block, key));
    k.pitch = p.k.row * 2;
    k.half = tile_side * k.pitch;
    next = step_channels * 2;
  } else {
    k.at = layout.k_in_place ? last_keys : packed_step(block, layout, key) + layout.k_at();
    k.half = layout.qk_steps * tile_bytes;
    k.part = 2 * k.half;
  }
  return k;
}

// The first product: x of a group's keys [key, key + 32). All of a float16 counts; of a float32 low by low is not worth
// a product.
template <Dtype dtype>
void tile_scores(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout, const Group& group,
                 int64_t key, const char* last_keys, float* x) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  int64_t next;
  LeftOperand k = keys_at(call, block, layout, key, last_keys, next);
  zero_sums(tiles);
  const char* q = group.q;
  for (int64_t step = 0; step < layout.qk_steps; ++step, k.at += next, q += 2 * tile_bytes)
    multiply_step<parts_of<dtype>, dtype != Dtype::f32>(tiles, k, q, layout.qk_steps * 2 * tile_bytes);
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
inline void scores_of_held_q(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout, int64_t key,
                             const char* last_keys, float* x) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  int64_t next;
  LeftOperand k = keys_at(call, block, layout, key, last_keys, next);
  for (int half = 0; half < 2; ++half, k.at += k.half, x += tile_side * group_rows) {
    tiles.zero<0>();
    tiles.zero<1>();
    tiles.load<2>(k.at, k.pitch);
    tiles.load<3>(k.at + next, k.pitch);
    tiles.multiply_add<0, 2, 4>();
    tiles.multiply_add<1, 2, 5>();
    tiles.multiply_add<0, 3, 6>();
    tiles.multiply_add<1, 3, 7>();
    tiles.store<0>(x, pitch);
    tiles.store<1>(x + tile_side, pitch);
  }
}

// The second product: O^T += V^T P^T over the keys [from, to), whose weights begin at `weights`.
template <int Parts>
void tile_values(Tiles& tiles, const Block& block, const TileLayout& layout, Group& group, int64_t from, int64_t to,
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
    for (int64_t key = from; key < to; key += step_keys) {
      multiply_step<Parts, false>(tiles, v, at, 2 * tile_bytes);
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
