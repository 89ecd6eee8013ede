// What is multiplied in pairs of bf16, by the tile unit or without one, and where it lies. Tiles are 1 KiB; keys come
// in steps of 32, two tiles of 16.
//
//   Q      pairs of channels x 16 rows      transposed once per task
//   K      16 keys x 32 channels            packed once per KV head, or read in place
//   V^T    16 columns x 32 keys             packed once per KV head
//   P^T    pairs of keys x 16 rows          what the softmax writes
//
// A float16 is the exact sum of two bf16 parts, and a float32 that of three: so many parts their operands have. A
// float32 with ATTUNE_F32_HIGH is taken as the sum of two, which leaves out at most 2^-17 of it.
#pragma once

#include "cpu/level/memory.inl.hpp"
#include "cpu/level/tiles.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int64_t step_keys = packed_keys;
constexpr int64_t step_pairs = step_keys / 2;
constexpr int64_t step_channels = 32;
constexpr int group_rows = 32;  // rows of one product: two tiles

// A type, and as how many parts of bf16 its numbers are multiplied.
struct Format {
  Dtype dtype;
  int parts;
};
constexpr Format bf16_whole{Dtype::bf16, 1}, f16_parts{Dtype::f16, 2};
constexpr Format f32_parts{Dtype::f32, 3}, f32_rounded{Dtype::f32, 2};
inline Format format_of(const Problem& p) {
  if (p.dtype == Dtype::bf16) return bf16_whole;
  if (p.dtype == Dtype::f16) return f16_parts;
  return (p.features & ATTUNE_F32_HIGH) != 0 ? f32_rounded : f32_parts;
}

// Whether products of bf16 are so much quicker than those of float32 that several of them, of parts, are still quicker,
// and 32 rows of them quicker than 16 of float32. And up to how many rows of queries a copy of K would cost more than
// it saves: tiles whose rows are not next to each other load slowly even from the L1 cache.
#if defined(ATTUNE_PAIRS_IN_VECTORS)
constexpr bool multiplies_parts = false;
constexpr int64_t least_rows_in_pairs = width + 1;
constexpr int64_t most_rows_in_place = INT64_MAX;
#else
constexpr bool multiplies_parts = true;
constexpr int64_t least_rows_in_pairs = 0;
constexpr int64_t most_rows_in_place = 3 * group_rows;
#endif
// Keys further apart than this fall on few cache sets and many pages: then a copy is always quicker.
constexpr int64_t longest_pitch_in_place = 512;

// Up to so many rows, packing the keys in three parts costs more than their products save.
constexpr int64_t least_rows_in_three_parts = 4 * group_rows;

// Query rows that share a KV head. Not Problem::group(), which levels may not share.
inline int64_t rows_of_kv_head(const Problem& p) { return p.heads_kv == 0 ? 0 : p.heads_q / p.heads_kv * p.seq_q; }

// Whether a problem is computed in pairs of bf16. A scale beyond 2^90 would leave no room for what distance_factor()
// multiplies it by. One beyond 2^20 would show what the tile unit flushes to 0 in the scores of three parts.
inline bool in_pairs(const Problem& p) {
  const Format format = format_of(p);
  if (format.parts > 1 && !multiplies_parts) return false;
  const int64_t least_rows = format.parts == 3 ? least_rows_in_three_parts : least_rows_in_pairs;
  return rows_of_kv_head(p) >= least_rows && scale_is_within(p, format.parts == 3 ? 0x1p20f : most_scale_in_pairs);
}

// The layout of one packed step of keys: a header, V^T, K.
struct TileLayout {
  int parts = 1;
  int64_t qk_steps = 0;    // of 32 channels
  int64_t v_strips = 0;    // of 32 columns
  int64_t chunk_keys = 0;  // keys whose weights exist at a time: with their K and V they stay in the L2 cache
  bool k_in_place = false;

  explicit TileLayout(const Problem& p) {
    parts = format_of(p).parts;
    qk_steps = round_up(p.dim_qk, step_channels) / step_channels;
    v_strips = round_up(p.dim_v, 2 * tile_side) / (2 * tile_side);
    chunk_keys = (p.dim_qk + p.dim_v) * parts <= 512 ? 512 : 256;
    const int64_t pitch = p.k.row * 2;
    k_in_place = parts == 1 && p.dim_qk % step_channels == 0 && rows_of_kv_head(p) <= most_rows_in_place &&
                 pitch <= longest_pitch_in_place && pitch >= -longest_pitch_in_place;
  }
  int64_t out_count() const { return v_strips * 2 * tile_side * group_rows; }  // sums of a group
  int64_t k_bytes() const { return parts * 2 * qk_steps * tile_bytes; }
  int64_t v_part() const { return 2 * v_strips * tile_bytes; }
  int64_t v_at() const { return 64; }
  int64_t k_at() const { return v_at() + parts * v_part(); }
  int64_t step_bytes() const { return k_at() + (k_in_place ? 0 : k_bytes()); }
};

// Asks for a line of the step that is packed after this one, if there is one: no address is wrong for that.
inline void fetch_later(const char* line) { __builtin_prefetch(line, 0, 2); }

// What the products cannot do right, and is done after them (patch_scores, add_special_values).
struct StepHeader {
  bool special_keys, special_values;
};

// Not finite, or not when rounded to bf16.
inline Ints is_not_finite(Floats v) { return (bits_as<Words>(v) & 0x7fffffffu) >= 0x7f7f8000u; }
// Not finite, or so large that, of three parts, the tile unit may flush a product with it to 0 that counts.
template <Format format>
Ints is_unfit_for_scores(Floats v) {
  constexpr uint32_t too_large = 0x5b800000u;  // 2^56
  return format.parts == 3 ? (bits_as<Words>(v) & 0x7fffffffu) >= too_large : is_not_finite(v);
}
// Not finite, or so small that the tile unit may flush a product with it to 0 that counts. No float16 is.
template <Format format>
Ints is_special(Floats v) {
  constexpr uint32_t least = format.parts == 3 ? 0x17800000u : 0x0d800000u;  // 2^-80, 2^-100
  if (format.dtype == Dtype::f16) return is_not_finite(v);
  return is_not_finite(v) | ((bits_as<Words>(v) & 0x7fffffffu) - 1u < least - 1u);
}
inline bool any(Ints lanes) { return _mm512_test_epi32_mask(bits_as<__m512i>(lanes), bits_as<__m512i>(lanes)) != 0; }

#define ATTUNE_SHUFFLE(name, ...) \
  inline Words name(Words a, Words b) { return __builtin_shufflevector(a, b, __VA_ARGS__); }
ATTUNE_SHUFFLE(low_words, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
ATTUNE_SHUFFLE(high_words, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
ATTUNE_SHUFFLE(low_pairs, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
ATTUNE_SHUFFLE(high_pairs, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
ATTUNE_SHUFFLE(even_quads, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
ATTUNE_SHUFFLE(odd_quads, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#undef ATTUNE_SHUFFLE

// The upper halves of two vectors of words, pairwise.
inline Words upper_halves(Words even, Words odd) {
  return bits_as<Words>(_mm512_mask_blend_epi16(0xaaaaaaaau, bits_as<__m512i>(even >> 16), bits_as<__m512i>(odd)));
}

// Row `lane` of the `count` rows of a block from `first` on; NULL if there is none, or nothing of it counts.
inline const char* q_row(const Call& call, const Block& block, int first, int lane, int count) {
  return lane < count ? q_row(call, block, first + lane) : nullptr;
}

// put(j, row j of the transpose) of 16 x 16 words.
template <typename Put>
void transpose_to(Words (&r)[tile_side], const Put& put) {
  Words t[tile_side];
  for (int i = 0; i < 16; i += 2) {
    t[i] = low_words(r[i], r[i + 1]);
    t[i + 1] = high_words(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = low_pairs(t[i], t[i + 2]);
    r[i + 1] = high_pairs(t[i], t[i + 2]);
    r[i + 2] = low_pairs(t[i + 1], t[i + 3]);
    r[i + 3] = high_pairs(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = 0; j < 4; ++j) {
      t[i + j] = even_quads(r[i + j], r[i + j + 4]);
      t[i + j + 4] = odd_quads(r[i + j], r[i + j + 4]);
    }
  }
  for (int i = 0; i < 8; ++i) {
    put(i, even_quads(t[i], t[i + 8]));
    put(i + 8, odd_quads(t[i], t[i + 8]));
  }
}
// The same into memory; rows lie `pitch` bytes apart.
inline void transpose(Words (&r)[tile_side], char* to, int64_t pitch = tile_row_bytes) {
  transpose_to(r, [&](int j, Words row) { store_bytes(to + j * pitch, row); });
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
