// The two products of the row path on the tile unit, and what they cannot do right: values that are not finite or too
// small.
#pragma once

#include "cpu/level/tile_row_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// x = K Q^T of a step of keys.
template <int R>
[[gnu::noinline]] void tile_row_scores(Tiles& tiles, StepRows k, const char* q, int64_t qk_steps, LinesAhead& ahead,
                                       float* x) {
  constexpr int64_t pitch = R * sizeof(float);
  tiles.zero<scores_low>();
  tiles.zero<scores_high>();
  for (int64_t step = 0; step < qk_steps; ++step) {
    tiles.load<queries>(q + step * R * tile_row_bytes, pitch);
    tiles.load<first_operand>(k.at + step * tile_row_bytes, k.pitch);
    tiles.multiply_add<scores_low, first_operand, queries>();
    ahead.fetch();
    tiles.load<second_operand>(k.at + step * tile_row_bytes + tile_side * k.pitch, k.pitch);
    tiles.multiply_add<scores_high, second_operand, queries>();
    ahead.fetch();
  }
  tiles.store<scores_low>(x, pitch);
  tiles.store<scores_high>(x + tile_side * R, pitch);
}

// A strip of 32 columns of a step of values, two keys interleaved: pairs of 16 columns make a row of one tile, those of
// the others one of the next. Of each 8 columns the first four are in the first tile. Each key is what `use` makes of
// it; `go_on` is called fetches_per_strip times.
template <int R, typename Use, typename GoOn>
ATTUNE_INLINE void interleave_strip(StepRows v, const Use& use, const GoOn& go_on, char* to) {
  constexpr int n = vector_keys<R>;
  ATTUNE_UNROLL
  for (int64_t j = 0; j < R; ++j, v.at += 2 * n * v.pitch) {
    if (j % (R / fetches_per_strip) == 0) go_on();
    ATTUNE_UNROLL
    for (int64_t c = 0; c < n; ++c) {
      const __m512i a = use(load_bytes<__m512i>(v.at + c * v.pitch));
      const __m512i b = use(load_bytes<__m512i>(v.at + (c + n) * v.pitch));
      char* const at = to + place_of_pair<R>(j, c) * tile_row_bytes;
      store_bytes(at, _mm512_unpacklo_epi16(a, b));
      store_bytes(at + tile_bytes, _mm512_unpackhi_epi16(a, b));
    }
  }
}

// A strip of a step of the second product, to be done once another one was interleaved: what was just stored is not yet
// where tiles are loaded from.
struct ValueStrip {
  const char* weights = nullptr;  // of a step, or NULL: those of the strip before
  const float* from = nullptr;    // sums so far; NULL: nothing to be done
  float* to = nullptr;
  const char* values = nullptr;
};

template <int R>
void multiply_strip(Tiles& tiles, const ValueStrip& strip) {
  if (strip.from == nullptr) return;
  if (strip.weights != nullptr) tiles.load<weights_tile>(strip.weights, tile_row_bytes);
  tiles.load<out_low>(strip.from, tile_row_bytes);
  tiles.load<first_operand>(strip.values, tile_row_bytes);
  tiles.multiply_add<out_low, weights_tile, first_operand>();
  tiles.load<out_high>(strip.from + R * tile_side, tile_row_bytes);
  tiles.load<second_operand>(strip.values + tile_bytes, tile_row_bytes);
  tiles.multiply_add<out_high, weights_tile, second_operand>();
  tiles.store<out_low>(strip.to, tile_row_bytes);
  tiles.store<out_high>(strip.to + R * tile_side, tile_row_bytes);
}

// O += P V for a step of keys; the last strip stays pending.
template <int R>
[[gnu::noinline]] void tile_row_values(Tiles& tiles, const TileRowScratch<R>& scratch, StepRows v, const char* weights,
                                       const float* from, float* to, LinesAhead& ahead, ValueStrip& pending) {
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip, v.at += tile_row_bytes) {
    char* const values = pending.values == scratch.values[0] ? scratch.values[1] : scratch.values[0];
    interleave_strip<R>(v, [](__m512i key) { return key; }, [&] { ahead.fetch(); }, values);
    multiply_strip<R>(tiles, pending);
    const int64_t out = strip * 2 * tile_side * R;
    pending = {strip == 0 ? weights : nullptr, from + out, to + out, values};
  }
}

// The tile unit takes values below 2^-126 for 0, and 0 times what is not finite for NaN. Sums that came out like that
// are not finite, or so small that what was lost may count.
inline Ints may_be_wrong(Floats sums) {
  constexpr uint32_t least = 0x21800000u;  // 2^-60
  return (bits_as<Words>(sums) & 0x7fffffffu) - least >= 0x7f800000u - least;
}

// Adds weight times value for the special values of 32 columns of a key, where the weight is not 0.
template <int R>
void add_special(Words values, const char* weights, int64_t key, float* sums) {
  constexpr int n = vector_keys<R>;
  const int64_t pair = place_of_pair<R>(key / (2 * n), key % n), second = key / n % 2;
  // Beside a 0, in the lower half of a word, each is a float.
  const __m512i halves[2] = {_mm512_unpacklo_epi16(__m512i{}, bits_as<__m512i>(values)),
                             _mm512_unpackhi_epi16(__m512i{}, bits_as<__m512i>(values))};
  for (int half = 0; half < 2; ++half) {
    const auto all = bits_as<Floats>(halves[half]);
    if (!any(is_special<bf16_whole>(all))) continue;
    const Floats special = is_special<bf16_whole>(all) ? all : Floats{};
    for (int64_t r = 0; r < R; ++r) {
      uint32_t word;
      __builtin_memcpy(&word, weights + r * tile_row_bytes + pair * 4, sizeof word);
      const auto weight = bits_as<float>(second == 0 ? word << 16 : word & 0xffff0000u);
      if (weight == 0) continue;
      float* const to = sums + (half * R + r) * tile_side;
      store(to, load(to) + weight * special);
    }
  }
}

// A strip of the sums of a chunk once more, where they may be wrong because of special values: those are 0 to the tile
// unit now, and added in vectors. All other sums stay as they are, so that none depends on its neighbours.
template <int R, typename RowsOfStep>
[[gnu::noinline]] void sum_strip_again(Tiles& tiles, const TileRowScratch<R>& scratch, const TileRowHead& head,
                                       int64_t strip, int64_t steps, const RowsOfStep& rows_of_step) {
  const auto strip_of_step = [&](int64_t step) {
    const StepRows v = rows_of_step(step);
    return StepRows{v.at + strip * tile_row_bytes, v.pitch};
  };
  const auto load_key = [](const StepRows& v, int64_t key) { return load_bytes<Words>(v.at + key * v.pitch); };
  const auto has_special = [&](const StepRows& v) {
    __mmask32 special = 0;
    for (int64_t key = 0; key < step_keys; ++key) special |= special_pairs(load_key(v, key));
    return special != 0;
  };
  bool needed = false;
  for (int64_t step = 0; step < steps && !needed; ++step) needed = has_special(strip_of_step(step));
  if (!needed) return;

  const float* const before = head.out + strip * 2 * R * tile_side;
  float* const after = head.next_out + strip * 2 * R * tile_side;
  for (int64_t step = 0; step < steps; ++step) {
    const auto without_special = [](__m512i key) {
      return _mm512_maskz_mov_epi16(~special_pairs(bits_as<Words>(key)), key);
    };
    interleave_strip<R>(strip_of_step(step), without_special, [] {}, scratch.values[0]);
    const char* const weights = head.weights + step * weights_bytes<R>;
    multiply_strip<R>(tiles, {weights, step == 0 ? before : scratch.again, scratch.again, scratch.values[0]});
  }
  for (int64_t i = 0; i < 2 * R * tile_side; i += width) {  // sums below 2^-126 were 0 to the tile unit, too
    const Floats sums = load(before + i);
    const Ints flushed = (bits_as<Words>(sums) & 0x7fffffffu) < 0x00800000u;
    store(scratch.again + i, load(scratch.again + i) + (flushed ? sums : Floats{}));
  }
  for (int64_t step = 0; step < steps; ++step) {
    const StepRows v = strip_of_step(step);
    for (int64_t key = 0; key < step_keys; ++key)
      add_special<R>(load_key(v, key), head.weights + step * weights_bytes<R>, key, scratch.again);
  }
  for (int64_t i = 0; i < 2 * R * tile_side; i += width) {
    const Floats sums = load(after + i);
    store(after + i, may_be_wrong(sums) ? load(scratch.again + i) : sums);
  }
}

// Ends a chunk of `steps` steps of a head: its sums are right, and what the next one starts from.
template <int R, typename RowsOfStep>
void end_chunk(Tiles& tiles, const TileRowScratch<R>& scratch, TileRowHead& head, int64_t steps,
               const RowsOfStep& rows_of_step) {
  const Ints column{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27};  // of a strip's first tile
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip) {
    const float* const sums = head.next_out + strip * 2 * R * tile_side;
    Ints first{}, second{};
    ATTUNE_UNROLL
    for (int64_t r = 0; r < R; ++r) {
      first |= may_be_wrong(load(sums + r * tile_side));
      second |= may_be_wrong(load(sums + (R + r) * tile_side));
    }
    // Columns past the last one are 0.
    const auto columns = static_cast<int32_t>(scratch.dim_v - strip * 2 * tile_side);
    if (any((first & (column < columns)) | (second & (column + 4 < columns)))) [[unlikely]]
      sum_strip_again(tiles, scratch, head, strip, steps, rows_of_step);
  }
  float* const sums = head.next_out;
  head.next_out = head.out;
  head.out = sums;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
