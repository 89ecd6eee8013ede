// What the tile unit multiplies, and where it lies. Tiles are 1 KiB; keys come in steps of 32, two tiles of 16.
//
//   Q      pairs of channels x 16 rows      transposed once per task
//   K      16 keys x 32 channels            read in place, or packed where it cannot be
//   V^T    16 columns x 32 keys             packed once per KV head
//   P^T    pairs of keys x 16 rows          what the softmax writes
//
// A float16 is the exact sum of two bf16 parts, so its operands have two parts. A float32 with ATTUNE_F32_HIGH is taken
// as the sum of two, which leaves out at most 2^-17 of it.
#pragma once

#include "cpu/level/memory.inl.hpp"
#include "cpu/level/tiles.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int64_t step_keys = packed_keys;
constexpr int64_t step_channels = 32;
constexpr int group_rows = 32;  // rows of one product: two tiles

// Rows further apart than this fall on few cache sets and many pages: then a packed copy is quicker.
constexpr int64_t longest_pitch_in_place = 1024;

template <Dtype dtype>
constexpr int parts_of = dtype == Dtype::bf16 ? 1 : 2;

inline bool on_tiles(const Problem& p) { return p.dtype != Dtype::f32 || (p.features & ATTUNE_F32_HIGH) != 0; }

// The layout of one packed step of keys: a header, V^T, K.
struct TileLayout {
  int parts = 1;
  int64_t qk_steps = 0;    // of 32 channels
  int64_t v_strips = 0;    // of 32 columns
  int64_t chunk_keys = 0;  // keys whose scores exist at a time: with their K and V they stay in the L2 cache
  bool k_in_place = false;

  explicit TileLayout(const Problem& p) {
    parts = p.dtype == Dtype::bf16 ? 1 : 2;
    qk_steps = round_up(p.dim_qk, step_channels) / step_channels;
    v_strips = round_up(p.dim_v, 2 * tile_side) / (2 * tile_side);
    chunk_keys = (p.dim_qk + p.dim_v) * parts <= 512 ? 512 : 256;
    const int64_t pitch = p.k.row * 2;
    k_in_place = parts == 1 && p.dim_qk % step_channels == 0 && pitch <= longest_pitch_in_place &&
                 pitch >= -longest_pitch_in_place;
  }
  int64_t k_bytes() const { return parts * 2 * qk_steps * tile_bytes; }
  int64_t v_part() const { return 2 * v_strips * tile_bytes; }
  int64_t v_at() const { return 64; }
  int64_t k_at() const { return v_at() + parts * v_part(); }
  int64_t step_bytes() const { return k_at() + (k_in_place ? 0 : k_bytes()); }
};

// What the products cannot do right, and is done after them (patch_scores, add_special_values).
struct StepHeader {
  bool special_keys, special_values;
};

// Not finite, or not when rounded to bf16.
inline Ints is_not_finite(Floats v) { return (bits_as<Words>(v) & 0x7fffffffu) >= 0x7f7f8000u; }
// Not finite, or so small that the tile unit may flush a product with it to 0 that counts.
inline Ints is_special(Floats v) {
  constexpr uint32_t least = 0x0d800000u;  // 2^-100
  return is_not_finite(v) | ((bits_as<Words>(v) & 0x7fffffffu) - 1u < least - 1u);
}
inline bool any(Ints lanes) {
  int32_t all = 0;
  for (int i = 0; i < width; ++i) all |= lanes[i];
  return all != 0;
}

// The bf16 parts of each lane, in the low halves.
template <int Parts>
void split(Floats v, Words (&to)[Parts]) {
  if constexpr (Parts == 1) {
    to[0] = bits_as<Words>(v) >> 16;
  } else {
    to[0] = __builtin_convertvector(bf16_from_floats(v), Words);
    const Floats rest = v - bits_as<Floats>(to[0] << 16);
    to[1] = is_not_finite(v) ? Words{} : (bits_as<Words>(rest) + 0x8000u) >> 16;  // rounds; exact for a float16
  }
}

// Elements i to i + 16 of a row of `count`, zeros past its end.
template <Dtype dtype>
Floats load_some(const char* row, int64_t i, int64_t count) {
  const char* const from = row + i * size_of<dtype>;
  return i + width <= count ? load_as_floats<dtype>(from) : load_as_floats<dtype>(from, count - i);
}

#define ATTUNE_SHUFFLE(name, ...) \
  inline Words name(Words a, Words b) { return __builtin_shufflevector(a, b, __VA_ARGS__); }
ATTUNE_SHUFFLE(low_words, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
ATTUNE_SHUFFLE(high_words, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
ATTUNE_SHUFFLE(low_pairs, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
ATTUNE_SHUFFLE(high_pairs, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
ATTUNE_SHUFFLE(even_quads, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
ATTUNE_SHUFFLE(odd_quads, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#undef ATTUNE_SHUFFLE

// to[j][i] = rows[i][j] for 16 x 16 words, to a tile.
inline void transpose_to_tile(Words (&r)[tile_side], char* to) {
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
    store_bytes(to + i * tile_row_bytes, even_quads(t[i], t[i + 8]));
    store_bytes(to + (i + 8) * tile_row_bytes, odd_quads(t[i], t[i + 8]));
  }
}

// `keys` <= 32 keys from `from`, then zeros, as tiles of K. True if a part product cannot give their scores.
template <Dtype dtype>
bool pack_k_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys, char* to) {
  constexpr int Parts = parts_of<dtype>;
  const Problem& p = *call.problem;
  const char* k = element(call.args->k, p.dtype, key_offset(p, p.k, block, from));
  Ints special{};
  for (int64_t key = 0; key < step_keys; ++key) {
    for (int64_t d = 0; d < layout.qk_steps * step_channels; d += width) {
      Floats value{};
      if (key < keys && d < p.dim_qk) value = load_some<dtype>(k + key * p.k.row * size_of<dtype>, d, p.dim_qk);
      if constexpr (Parts == 2) special |= is_not_finite(value);
      Words part[Parts];
      split<Parts>(value, part);
      char* const at = to + (key / tile_side * layout.qk_steps + d / step_channels) * tile_bytes +
                       key % tile_side * tile_row_bytes + d % step_channels * 2;
      for (int i = 0; i < Parts; ++i)
        store_bytes(at + i * 2 * layout.qk_steps * tile_bytes, __builtin_convertvector(part[i], Halves));
    }
  }
  return any(special);
}

// The same keys' values, transposed; what is special in them becomes 0. True if something was.
template <Dtype dtype>
bool pack_v_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys, char* to) {
  constexpr int Parts = parts_of<dtype>;
  const Problem& p = *call.problem;
  const char* v = element(call.args->v, p.dtype, key_offset(p, p.v, block, from));
  Ints special{};
  for (int64_t tile = 0; tile < 2 * layout.v_strips; ++tile) {
    const int64_t column = tile * tile_side;
    Words rows[Parts][tile_side];
    for (int64_t pair = 0; pair < tile_side; ++pair) {
      Words part[2][Parts] = {};
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t key = 2 * pair + i;
        if (key >= keys || column >= p.dim_v) continue;
        const Floats value = load_some<dtype>(v + key * p.v.row * size_of<dtype>, column, p.dim_v);
        const Ints unfit = is_special(value);
        special |= unfit;
        split<Parts>(unfit ? Floats{} : value, part[i]);
      }
      for (int i = 0; i < Parts; ++i) rows[i][pair] = part[0][i] | part[1][i] << 16;
    }
    for (int i = 0; i < Parts; ++i) transpose_to_tile(rows[i], to + i * layout.v_part() + tile * tile_bytes);
  }
  return any(special);
}

// One packed step, complete.
template <Dtype dtype>
void pack_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys, char* to) {
  StepHeader header{};
  header.special_values = pack_v_step<dtype>(call, block, layout, from, keys, to + layout.v_at());
  if (!layout.k_in_place) header.special_keys = pack_k_step<dtype>(call, block, layout, from, keys, to + layout.k_at());
  __builtin_memcpy(to, &header, sizeof header);
}

// The rows [first, first + count) of a block as tiles of Q, zeros up to 32 rows; `rows` is room for 16 rows of floats.
// Returns a bit for each row that is not finite.
template <int Parts>
uint32_t pack_q(const Call& call, const Block& block, const TileLayout& layout, int first, int count, float* rows,
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
      Words tile[Parts][tile_side];
      for (int i = 0; i < tile_side; ++i) {
        Words low[Parts], high[Parts];
        split<Parts>(load(rows + i * pitch + step * step_channels), low);
        split<Parts>(load(rows + i * pitch + step * step_channels + width), high);
        for (int part = 0; part < Parts; ++part) {
          Halves halves[2] = {__builtin_convertvector(low[part], Halves), __builtin_convertvector(high[part], Halves)};
          tile[part][i] = load_bytes<Words>(halves);
        }
      }
      for (int part = 0; part < Parts; ++part)
        transpose_to_tile(tile[part], to + ((part * layout.qk_steps + step) * 2 + half) * tile_bytes);
    }
  }
  return special;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
