// The block path on the tile unit, for the 16-bit types: S^T = K Q^T and O^T = V^T P^T in tiles, the softmax between
// them in vectors with the rows along the lanes. K is read in place, and the weights are written in the very layout of
// the second product's operand.
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
// Groups that go through each phase together: the tile unit takes hundreds of cycles to start after a pause.
constexpr int phase_groups = 2;
// How far scores may exceed the reference of the weights, as a power of 2, before sums are rescaled.
constexpr float most_excess = 8;

// 32 rows and their state between chunks.
struct Group {
  Tile<float> rows;
  char* q = nullptr;
  uint32_t special_rows = 0;      // not finite
  float* rounded_sums = nullptr;  // of bf16 weights, beside rows.sums of the weights before rounding
  // Sums of what was packed as 0, like rows.out and apart from it: the tile unit would flush them to 0.
  float* special_out = nullptr;
  bool has_special_out = false;
  float* x = nullptr;        // chunk_keys x 32: of this group's place in its phase
  char* weights = nullptr;   // steps x parts x 2 tiles
  int64_t from = 0, to = 0;  // keys of this chunk
};

struct TileScratch {
  Group groups[max_groups];
  float* bias = nullptr;
  char* last_keys = nullptr;  // the last step of K, where it is not full and the others are read in place
  float* q_rows = nullptr;    // 16 rows of row_pitch
  float* out_rows = nullptr;  // 4 rows of row_pitch

  TileScratch(const Problem& p, const TileLayout& layout, Arena& arena) {
    float* x[phase_groups];
    char* weights[phase_groups];
    for (int i = 0; i < phase_groups; ++i) {
      x[i] = arena.take<float>(layout.chunk_keys * group_rows);
      weights[i] = arena.take<char>(layout.chunk_keys / step_keys * layout.parts * 2 * tile_bytes);
    }
    for (int i = 0; i < max_groups; ++i) {
      groups[i].x = x[i % phase_groups];
      groups[i].weights = weights[i % phase_groups];
      groups[i].q = arena.take<char>(layout.parts * layout.qk_steps * 2 * tile_bytes);
      groups[i].rows.out = arena.take<float>(layout.v_strips * 2 * tile_side * group_rows);
      groups[i].special_out = arena.take<float>(layout.v_strips * 2 * tile_side * group_rows);
      groups[i].rows.largest = arena.take<float>(group_rows);
      groups[i].rows.sums = arena.take<float>(group_rows);
      groups[i].rounded_sums = arena.take<float>(group_rows);
    }
    if ((p.features & ATTUNE_BIAS) != 0) bias = arena.take<float>(layout.chunk_keys * group_rows);
    if (layout.k_in_place) last_keys = arena.take<char>(layout.k_bytes());
    q_rows = arena.take<float>(tile_side * row_pitch);
    out_rows = arena.take<float>(4 * row_pitch);
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

// The first product: x of the group's keys. All of a float16 counts; of a float32 low by low is not worth a product.
template <Dtype dtype>
void tile_scores(Tiles& tiles, const Call& call, const Block& block, const TileLayout& layout, const Group& group,
                 const char* last_keys) {
  const Problem& p = *call.problem;
  constexpr int64_t pitch = group_rows * sizeof(float);
  for (int64_t key = group.from; key < group.to; key += step_keys) {
    LeftOperand k;
    int64_t next = tile_bytes;
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
    tiles.zero<0>();
    tiles.zero<1>();
    tiles.zero<2>();
    tiles.zero<3>();
    const char* q = group.q;
    for (int64_t step = 0; step < layout.qk_steps; ++step, k.at += next, q += 2 * tile_bytes)
      multiply_step<parts_of<dtype>, dtype != Dtype::f32>(tiles, k, q, layout.qk_steps * 2 * tile_bytes);
    float* x = group.x + (key - group.from) * group_rows;
    tiles.store<0>(x, pitch);
    tiles.store<1>(x + tile_side, pitch);
    tiles.store<2>(x + tile_side * group_rows, pitch);
    tiles.store<3>(x + tile_side * group_rows + tile_side, pitch);
  }
}

// The second product: O^T += V^T P^T over the group's keys.
template <int Parts>
void tile_values(Tiles& tiles, const Block& block, const TileLayout& layout, const Group& group) {
  constexpr int64_t pitch = group_rows * sizeof(float);
  for (int64_t strip = 0; strip < layout.v_strips; ++strip) {
    float* out = group.rows.out + strip * 2 * tile_side * group_rows;
    tiles.load<0>(out, pitch);
    tiles.load<1>(out + tile_side, pitch);
    tiles.load<2>(out + tile_side * group_rows, pitch);
    tiles.load<3>(out + tile_side * group_rows + tile_side, pitch);
    LeftOperand v;
    v.at = packed_step(block, layout, group.from) + layout.v_at() + strip * 2 * tile_bytes;
    v.part = layout.v_part();
    const char* weights = group.weights;
    for (int64_t key = group.from; key < group.to; key += step_keys) {
      multiply_step<Parts, false>(tiles, v, weights, 2 * tile_bytes);
      v.at += layout.step_bytes();
      weights += Parts * 2 * tile_bytes;
    }
    tiles.store<0>(out, pitch);
    tiles.store<1>(out + tile_side, pitch);
    tiles.store<2>(out + tile_side * group_rows, pitch);
    tiles.store<3>(out + tile_side * group_rows + tile_side, pitch);
  }
}

// 2^(x * factor), relative error 3e-6, far below the rounding of a weight and within what an LSE may be off by. Exactly
// 1 for 0, exactly 0 below 2^-126; NaN stays NaN.
inline Floats quick_exp2(Floats x, Floats factor) {
  constexpr float rounder = 0x1.8p23f + 127;                                 // as in exp2_parts
  const Floats t = _mm512_maskz_max_ps(0xffff, splat(-127.0f), x * factor);  // the second operand, if that is NaN
  const Floats shifted = t + rounder;
  const Floats rest = t - (shifted - rounder);
  Floats q = splat(9.5828531689e-03f);
  q = multiply_add(q, rest, splat(5.5906425036e-02f));
  q = multiply_add(q, rest, splat(2.4024098611e-01f));
  q = multiply_add(q, rest, splat(6.9312419337e-01f));
  q = multiply_add(q, rest, splat(1.0f));
  return q * bits_as<Floats>(bits_as<Words>(shifted) << 23);
}

// Rounds the weights of two neighbouring keys to bf16, pairwise.
inline Words pairs_of_bf16(Floats even, Floats odd) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  const auto halves = bits_as<AllHalves>(_mm512_maskz_cvtne2ps_pbh(~__mmask32{0}, odd, even));
  return bits_as<Words>(__builtin_shufflevector(halves, halves, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}

// sum + even + odd
inline Floats add_pairs_of_bf16(Floats sum, Words pairs) {
  const Words ones = Words{} + 0x3f803f80u;
  return _mm512_dpbf16_ps(sum, bits_as<__m512bh>(pairs), bits_as<__m512bh>(ones));
}

// One step of the online softmax: x to weights, in parts. The reference moves only where x exceeds it by far.
template <int Parts>
void tile_softmax(const Call& call, const TileLayout& layout, const Group& group) {
  constexpr int vecs = group_rows / width;
  const Tile<float>& rows = group.rows;
  const Floats high = splat(call.exp2_high);
  const Floats excess = splat(call.exp2_high > most_excess / __FLT_MAX__ ? most_excess / call.exp2_high : __FLT_MAX__);
  const int64_t keys = group.to - group.from;
  Floats top[vecs], reference[vecs], total[vecs], rounded_total[vecs], factor[vecs];
  Ints moved{};
  for (int v = 0; v < vecs; ++v) top[v] = load(rows.largest + v * width);
  raise_largest(group.x, keys, top);
  for (int v = 0; v < vecs; ++v) {
    const Floats before = load(rows.largest + v * width);
    const Ints moves = top[v] > before + excess;
    const Floats now = moves ? top[v] : before;
    moved |= moves;
    reference[v] = reference_of(now);
    factor[v] = quick_exp2(before - reference[v], high);
    total[v] = load(rows.sums + v * width) * factor[v];
    rounded_total[v] = load(group.rounded_sums + v * width) * factor[v];
    store(rows.largest + v * width, now);
  }
  const auto rescale = [&](float* out) {
    for (int64_t i = 0; i < layout.v_strips * 2 * tile_side * group_rows; i += group_rows) {
      ATTUNE_UNROLL
      for (int v = 0; v < vecs; ++v) store(out + i + v * width, load(out + i + v * width) * factor[v]);
    }
  };
  if (any(moved)) {
    rescale(rows.out);
    if (group.has_special_out) rescale(group.special_out);
  }
  for (int64_t pair = 0; pair < keys / 2; ++pair) {
    char* const to = group.weights + pair / tile_side * (Parts * 2 * tile_bytes) + pair % tile_side * tile_row_bytes;
    ATTUNE_UNROLL
    for (int v = 0; v < vecs; ++v) {
      const float* x = group.x + 2 * pair * group_rows + v * width;
      const Floats even = quick_exp2(load(x) - reference[v], high);
      const Floats odd = quick_exp2(load(x + group_rows) - reference[v], high);
      total[v] += even;
      total[v] += odd;
      const Words weights = pairs_of_bf16(even, odd);
      store_bytes(to + v * tile_bytes, weights);
      if constexpr (Parts == 1) rounded_total[v] = add_pairs_of_bf16(rounded_total[v], weights);
      if constexpr (Parts == 2)
        store_bytes(to + (2 + v) * tile_bytes,
                    pairs_of_bf16(even - bits_as<Floats>(weights << 16), odd - bits_as<Floats>(weights & 0xffff0000u)));
    }
  }
  for (int v = 0; v < vecs; ++v) {
    store(rows.sums + v * width, total[v]);
    store(group.rounded_sums + v * width, rounded_total[v]);
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
