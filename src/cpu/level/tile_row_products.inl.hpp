// The two products of the row path on the tile unit, and what they cannot do right: values that are not finite or too
// small.
#pragma once

#include "cpu/level/tile_row_softmax.inl.hpp"

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
    tiles.load<low_keys>(k.at + step * tile_row_bytes, k.pitch);
    tiles.multiply_add<scores_low, low_keys, queries>();
    ahead.fetch();
    tiles.load<high_keys>(k.at + step * tile_row_bytes + tile_side * k.pitch, k.pitch);
    tiles.multiply_add<scores_high, high_keys, queries>();
    ahead.fetch();
  }
  tiles.store<scores_low>(x, pitch);
  tiles.store<scores_high>(x + tile_side * R, pitch);
}

template <int R>
ATTUNE_INLINE void load_weights(Tiles& tiles, const char* weights) {
  tiles.load<low_even>(weights, tile_row_bytes);
  tiles.load<high_even>(weights + 2 * weights_tile_bytes<R>, tile_row_bytes);
  if constexpr (!odd_below_even<R>) {
    tiles.load<low_odd>(weights + weights_tile_bytes<R>, tile_row_bytes);
    tiles.load<high_odd>(weights + 3 * weights_tile_bytes<R>, tile_row_bytes);
  }
}

// Adds the products of the weights that were loaded and a strip of 32 columns of values to sums; `go_on` is called
// fetches_per_strip times.
template <int R, typename GoOn>
ATTUNE_INLINE void multiply_strip(Tiles& tiles, StepRows v, const float* from, float* to, const GoOn& go_on) {
  tiles.load<out_even>(from, tile_row_bytes);
  tiles.load<low_values>(v.at, v.pitch);
  go_on();
  tiles.multiply_add<out_even, low_even, low_values>();
  if constexpr (!odd_below_even<R>) {
    tiles.load<out_odd>(from + R * tile_side, tile_row_bytes);
    tiles.multiply_add<out_odd, low_odd, low_values>();
  }
  tiles.load<high_values>(v.at + tile_side * v.pitch, v.pitch);
  go_on();
  tiles.multiply_add<out_even, high_even, high_values>();
  tiles.store<out_even>(to, tile_row_bytes);
  go_on();
  if constexpr (!odd_below_even<R>) {
    tiles.multiply_add<out_odd, high_odd, high_values>();
    tiles.store<out_odd>(to + R * tile_side, tile_row_bytes);
  }
}

// O += P V for a step of keys.
template <int R>
[[gnu::noinline]] void tile_row_values(Tiles& tiles, const TileRowScratch<R>& scratch, StepRows v, const char* weights,
                                       const float* from, float* to, LinesAhead& ahead) {
  load_weights<R>(tiles, weights);
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip, v.at += tile_row_bytes) {
    const int64_t out = strip * 2 * tile_side * R;
    multiply_strip<R>(tiles, v, from + out, to + out, [&] { ahead.fetch(); });
  }
}

// Adds weight times value for the special values of 32 columns of a key, where the weight is not 0.
template <int R>
void add_special(Words values, const char* weights, int64_t key, float* sums) {
  const char* const of_key = weights + key / tile_side * 2 * weights_tile_bytes<R> + key % tile_side * 4;
  for (int odd = 0; odd < 2; ++odd) {
    const auto all = bits_as<Floats>(odd != 0 ? values & 0xffff0000u : values << 16);
    if (!any(is_special<bf16_whole>(all))) continue;
    const Floats special = is_special<bf16_whole>(all) ? all : Floats{};
    for (int64_t r = 0; r < R; ++r) {
      uint32_t word;
      __builtin_memcpy(&word, of_key + r * tile_row_bytes, sizeof word);
      const auto weight = bits_as<float>(word << 16);
      if (weight == 0) continue;
      float* const to = sums + (odd * R + r) * tile_side;
      store(to, load(to) + weight * special);
    }
  }
}

// A strip of the sums of a chunk once more, where they may be wrong because of special values: those are 0 to the tile
// unit now, and added in vectors. All other sums stay as they are, so that none depends on its neighbours.
template <int R, typename RowsOfStep>
[[gnu::noinline]] void sum_strip_again(Tiles& tiles, const Call& call, const TileRowScratch<R>& scratch,
                                       const TileRowHead& head, const float* x, int64_t strip, int64_t steps,
                                       const RowsOfStep& rows_of_step) {
  const auto load_key = [&](const StepRows& v, int64_t key) {
    return load_bytes<Words>(v.at + strip * tile_row_bytes + key * v.pitch);
  };
  bool needed = false;
  for (int64_t step = 0; step < steps && !needed; ++step) {
    const StepRows v = rows_of_step(step);
    for (int64_t key = 0; key < step_keys; ++key) needed |= special_pairs(load_key(v, key)) != 0;
  }
  if (!needed) return;

  const float* const before = head.out + strip * 2 * R * tile_side;
  float* const after = head.next_out + strip * 2 * R * tile_side;
  for (int64_t i = 0; i < 2 * R * tile_side; i += width) store(scratch.again + i, load(before + i));
  const auto weigh_again = [&](int64_t step) {
    TileRowHead copy = head;  // its sums have these weights already
    LinesAhead nothing;
    weigh_step<R>(call, copy, x + step * step_keys * R, nothing, scratch.weights[0]);
  };
  for (int64_t step = 0; step < steps; ++step) {
    weigh_again(step);
    load_weights<R>(tiles, scratch.weights[0]);
    const StepRows v = rows_of_step(step);
    for (int64_t key = 0; key < step_keys; ++key) {
      const Words values = load_key(v, key);
      store_bytes(scratch.values + key * tile_row_bytes,
                  _mm512_maskz_mov_epi16(~special_pairs(values), bits_as<__m512i>(values)));
    }
    multiply_strip<R>(tiles, {scratch.values, tile_row_bytes}, scratch.again, scratch.again, [] {});
  }
  for (int64_t i = 0; i < 2 * R * tile_side; i += width) {  // sums below 2^-126 were 0 to the tile unit, too
    const Floats sums = load(before + i);
    const Ints flushed = (bits_as<Words>(sums) & 0x7fffffffu) < 0x00800000u;
    store(scratch.again + i, load(scratch.again + i) + (flushed ? sums : Floats{}));
  }
  for (int64_t step = 0; step < steps; ++step) {
    weigh_again(step);
    const StepRows v = rows_of_step(step);
    for (int64_t key = 0; key < step_keys; ++key)
      add_special<R>(load_key(v, key), scratch.weights[0], key, scratch.again);
  }
  for (int64_t i = 0; i < 2 * R * tile_side; i += width) {
    const Floats sums = load(after + i);
    store(after + i, may_be_wrong(sums) ? load(scratch.again + i) : sums);
  }
}

// Ends a chunk of a head, which has the scores x of `steps` steps: its sums are right, and what the next one starts
// from.
template <int R, typename RowsOfStep>
void end_chunk(Tiles& tiles, const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head, const float* x,
               int64_t steps, const RowsOfStep& rows_of_step) {
  const Ints even_column{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip) {
    const float* const sums = head.next_out + strip * 2 * R * tile_side;
    Ints even{}, odd{};
    ATTUNE_UNROLL
    for (int64_t r = 0; r < R; ++r) {
      even |= may_be_wrong(load(sums + r * tile_side));
      odd |= may_be_wrong(load(sums + (R + r) * tile_side));
    }
    // Columns past the last one are 0.
    const auto columns = static_cast<int32_t>(scratch.dim_v - strip * 2 * tile_side);
    if (any((even & (even_column < columns)) | (odd & (even_column + 1 < columns)))) [[unlikely]]
      sum_strip_again(tiles, call, scratch, head, x, strip, steps, rows_of_step);
  }
  float* const sums = head.next_out;
  head.next_out = head.out;
  head.out = sums;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
