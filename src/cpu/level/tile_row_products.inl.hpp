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

// A strip of 32 columns of a step of values, two keys interleaved: pairs of 16 columns make one tile, those of the
// others the next. Within each 8 columns the first four are in the first tile. Returns whether some may be special;
// with `clean`, those become 0, and it returns whether there are any.
template <int R, bool clean>
bool interleave_strip(StepRows v, LinesAhead& ahead, char* to) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  constexpr int n = vector_keys<R>;
  SpecialWatch watch;
  __mmask32 special = 0;
  const auto load_key = [&](const char* from) {
    AllHalves key = load_bytes<AllHalves>(from);
    if constexpr (clean) {
      const __mmask32 unfit = special_pairs(bits_as<Words>(key));
      special |= unfit;
      key = bits_as<AllHalves>(_mm512_maskz_mov_epi16(~unfit, bits_as<__m512i>(key)));
    } else {
      watch.look(bits_as<Words>(key));
    }
    return key;
  };
  ATTUNE_UNROLL
  for (int64_t j = 0; j < R; ++j) {
    if (!clean && j % (R / fetches_per_strip) == 0) ahead.fetch();
    ATTUNE_UNROLL
    for (int64_t c = 0; c < n; ++c) {
      const AllHalves a = load_key(v.at + c * v.pitch), b = load_key(v.at + (c + n) * v.pitch);
      char* const at = to + place_of_pair<R>(j, c) * tile_row_bytes;
      store_bytes(at, __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48,
                                              17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59));
      store_bytes(at + tile_bytes,
                  __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21,
                                          53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63));
    }
    v.at += 2 * n * v.pitch;
  }
  return clean ? special != 0 : watch.may_be_special();
}

// Adds weight times value for the special values of a strip, where the weight is not 0.
template <int R>
[[gnu::noinline]] void add_special_strip(const TileRowScratch<R>& scratch, TileRowHead& head, int64_t strip, StepRows v,
                                         const char* weights) {
  constexpr int n = vector_keys<R>;
  const int64_t columns = scratch.v_strips * 2 * tile_side;
  if (!head.has_special)
    for (int64_t i = 0; i < columns * R; i += width) store(head.special + i, Floats{});
  head.has_special = true;
  for (int64_t key = 0; key < step_keys; ++key) {
    const int64_t pair = place_of_pair<R>(key / (2 * n), key % n), second = key / n % 2;
    for (int64_t half = 0; half < 2; ++half) {
      const Floats loaded = load_as_floats<Dtype::bf16>(v.at + key * v.pitch + half * width * 2);
      const Ints unfit = is_special(loaded);
      if (!any(unfit)) continue;
      const Floats value = unfit ? loaded : Floats{};
      for (int64_t r = 0; r < R; ++r) {
        uint32_t word;
        __builtin_memcpy(&word, weights + r * tile_row_bytes + pair * 4, sizeof word);
        const auto weight = bits_as<float>(second == 0 ? word << 16 : word & 0xffff0000u);
        if (weight == 0) continue;
        float* const to = head.special + r * columns + (strip * 2 + half) * width;
        store(to, load(to) + weight * value);
      }
    }
  }
}

// One strip of the second product, to be done once another strip was interleaved: what was just stored is not yet where
// tiles are loaded from.
struct PendingStrip {
  const char* weights = nullptr;  // of a step, or NULL: those of the strip before
  float* out = nullptr;           // NULL: nothing to be done
  const char* values = nullptr;
};

template <int R>
void finish_strip(Tiles& tiles, PendingStrip& strip) {
  if (strip.out == nullptr) return;
  if (strip.weights != nullptr) tiles.load<weights_tile>(strip.weights, tile_row_bytes);
  tiles.load<out_low>(strip.out, tile_row_bytes);
  tiles.load<first_operand>(strip.values, tile_row_bytes);
  tiles.multiply_add<out_low, weights_tile, first_operand>();
  tiles.load<out_high>(strip.out + R * tile_side, tile_row_bytes);
  tiles.load<second_operand>(strip.values + tile_bytes, tile_row_bytes);
  tiles.multiply_add<out_high, weights_tile, second_operand>();
  tiles.store<out_low>(strip.out, tile_row_bytes);
  tiles.store<out_high>(strip.out + R * tile_side, tile_row_bytes);
  strip.out = nullptr;
}

// O += P V for a step of keys; the last strip stays pending.
template <int R>
[[gnu::noinline]] void tile_row_values(Tiles& tiles, const TileRowScratch<R>& scratch, TileRowHead& head, StepRows v,
                                       const char* weights, LinesAhead& ahead, PendingStrip& pending) {
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip, v.at += tile_row_bytes) {
    char* const values = pending.values == scratch.values[0] ? scratch.values[1] : scratch.values[0];
    if (interleave_strip<R, false>(v, ahead, values)) [[unlikely]]
      if (interleave_strip<R, true>(v, ahead, values)) add_special_strip(scratch, head, strip, v, weights);
    finish_strip<R>(tiles, pending);
    pending = {strip == 0 ? weights : nullptr, head.out + strip * 2 * tile_side * R, values};
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
