// The block path of bf16 pairs: S^T = K Q^T and O^T = V^T P^T in tiles (tile_products.inl.hpp) or, where there is no
// tile unit, in vectors (pair_products.inl.hpp); the softmax between them with the rows along the lanes, which leaves
// the weights in the very layout of the second product's operand.
//
// Scores become weights 32 keys at a time, so that they never leave the L1 cache, while those of the next 32 are
// computed. The second product follows after a chunk of keys.
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
// Of float32 in three parts, sums over so many keys are added up in double, so that their error does not grow with the
// keys: over as many the tile unit's own is less than half of that of one float32 sum.
constexpr int64_t tile_sum_keys = 1024;

// 32 rows and their state between chunks. rows.largest is the reference of the weights.
struct Group {
  Tile<float> rows;
  char* q = nullptr;
  uint32_t special_rows = 0;      // whose scores are computed anew (patch_scores)
  float* rounded_sums = nullptr;  // of bf16 weights, beside rows.sums of the weights before rounding
  float* sums_rest = nullptr;     // of weights of three parts: what rows.sums cannot hold
  // Of bf16 weights: how scores become distances from the highest weight (set_distances).
  float *origin = nullptr, *bound = nullptr;
  bool all_begun = false;  // every row has a reference
  bool some_far = false;   // some origin is not 0
  // Sums of what was packed as 0, like rows.out and apart from it: the tile unit would flush them to 0.
  float* special_out = nullptr;
  double* whole_out = nullptr;  // what rows.out was before, every tile_sum_keys
  // Otherwise all sums are 0, and what is in memory means nothing.
  bool has_out = false, has_special_out = false, has_whole_out = false;
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
      group.rows.out = arena.take<float>(layout.out_count());
      group.special_out = arena.take<float>(layout.out_count());
      if (layout.parts == 3 && p.seq_k > tile_sum_keys) group.whole_out = arena.take<double>(layout.out_count());
      group.rows.largest = arena.take<float>(group_rows);
      group.rows.sums = arena.take<float>(group_rows);
      group.rounded_sums = arena.take<float>(group_rows);
      group.sums_rest = arena.take<float>(group_rows);
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

// What vectors compute beside the products, where that is nothing.
struct Idle {};

// Two tiles of the left operand: rows `pitch` apart, the second tile `half` and the next part `part` further on.
struct LeftOperand {
  const char* at = nullptr;
  int64_t pitch = tile_row_bytes, half = tile_bytes, part = 0;
};

// Where the keys [key, key + 32) lie as the left operand, and how far the next channels are.
inline LeftOperand keys_at(const Call& call, const Block& block, const TileLayout& layout, int64_t key,
                           const char* last_keys, int64_t& next) {
  const Problem& p = *call.problem;
  LeftOperand k;
  next = tile_bytes;
  if (layout.k_in_place && key + step_keys <= block.seq_k) {
    k.at = element(call.operands->in(Operand::k), p.dtype, key_offset(p, p.k, block, key));
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

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
