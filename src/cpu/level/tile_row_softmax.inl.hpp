// The softmax of the row path on the tile unit: lanes are rows, or 16 / R keys of R rows.
#pragma once

#include "cpu/level/tile_row_operands.inl.hpp"
#include "cpu/level/tile_softmax.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Softcap, bias, mask and ranges of the keys [from, to), a whole number of steps.
template <int R>
[[gnu::noinline]] void shape_tile_rows(const Call& call, const Block& block, int64_t from, int64_t to, float* x,
                                       float* bias) {
  const Problem& p = *call.problem;
  const int64_t keys = smaller_of(to, block.seq_k) - from;
  const bool has_bias = (p.features & ATTUNE_BIAS) != 0;
  const auto in_use = [&](int r) { return stacked_row(call, block, r).row < block.seq_q; };
  if (has_bias) {
    for (int64_t i = 0; i < (to - from) * R; i += width) store(bias + i, Floats{});
    for (int r = 0; r < block.count; ++r)
      if (in_use(r)) load_bias(call, block, r, from, keys, bias + r, R);
  }
  finish_scores(call, x, has_bias ? bias : nullptr, (to - from) * R);
  if ((p.features & ATTUNE_MASK) != 0) {
    for (int r = 0; r < block.count; ++r)
      if (in_use(r)) apply_mask(call, block, r, from, keys, x + r, R);
  }
  for (int r = 0; r < block.count; ++r) {
    const KeyRange range = block.visible[r];
    for (int64_t key = from; key < smaller_of(range.begin, to); ++key) x[(key - from) * R + r] = -float_infinity;
    for (int64_t key = larger_of(range.end, from); key < to; ++key) x[(key - from) * R + r] = -float_infinity;
  }
}

// The largest of each row's lanes, in all of them.
template <int R>
Floats largest_of_rows(Floats v) {
  if constexpr (R <= 8)
    v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  if constexpr (R <= 4)
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  return v;
}

// Makes `top` the largest scores, and what was summed so far relative to them.
template <int R>
[[gnu::noinline]] void rescale_tile_rows(const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head,
                                         Floats top) {
  const Floats factor =
      exp2_of<float>(head.largest - reference_of(top), splat(call.exp2_high), splat(call.exp2_low)).part[0];
  head.largest = top;
  head.total *= factor;
  head.rounded_total *= factor;
  const int64_t tiles = scratch.v_strips * 2;
  for (int r = 0; r < R; ++r) {
    const Floats of_row = splat(factor[r]);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      float* const out = head.out + (tile * R + r) * tile_side;
      store(out, load(out) * of_row);
    }
  }
}

// The transpose of each 128-bit lane of four vectors.
inline void transpose_lanes(const Words* u, Words (&rows)[4]) {
  const Words a = low_words(u[0], u[1]), b = high_words(u[0], u[1]);
  const Words c = low_words(u[2], u[3]), d = high_words(u[2], u[3]);
  rows[0] = low_pairs(a, c);
  rows[1] = high_pairs(a, c);
  rows[2] = low_pairs(b, d);
  rows[3] = high_pairs(b, d);
}

// R vectors of R rows of 16 / R keys each, to rows of 16 keys.
template <typename StoreRow>
void transpose_keys(const Words (&u)[4], const StoreRow& store_row) {
  Words rows[4];
  transpose_lanes(u, rows);
  ATTUNE_UNROLL
  for (int i = 0; i < 4; ++i)
    store_row(i, __builtin_shufflevector(rows[i], rows[i], 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}
template <typename StoreRow>
void transpose_keys(const Words (&u)[8], const StoreRow& store_row) {
  Words quads[2][4];  // rows i and i + 4 of even keys, then of odd ones
  transpose_lanes(u, quads[0]);
  transpose_lanes(u + 4, quads[1]);
  ATTUNE_UNROLL
  for (int i = 0; i < 4; ++i) {
    const Words a = quads[0][i], b = quads[1][i];
    store_row(i, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27));
    store_row(i + 4, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15, 20, 28, 21, 29, 22, 30, 23, 31));
  }
}
template <typename StoreRow>
void transpose_keys(Words (&u)[16], const StoreRow& store_row) {
  transpose_to(u, store_row);
}

// Looks for larger scores in `count` x, all of which will have weights relative to them.
template <int R>
[[gnu::noinline]] void raise_largest(const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head,
                                     const float* x, int64_t count) {
  constexpr int chains = 4;
  static_assert(step_keys * R % (chains * width) == 0);
  Floats tops[chains] = {head.largest, head.largest, head.largest, head.largest};
  for (int64_t i = 0; i < count; i += chains * width) {
    ATTUNE_UNROLL
    for (int chain = 0; chain < chains; ++chain) tops[chain] = larger(load(x + i + chain * width), tops[chain]);
  }
  const Floats top = largest_of_rows<R>(larger(larger(tops[0], tops[1]), larger(tops[2], tops[3])));
  if (any(top > head.largest)) rescale_tile_rows(call, scratch, head, top);
}

// The weights of a step of keys, for the second product: of each 16 keys once in the lower halves of words, beside 0,
// and once in the upper ones. O is the mean by the weights rounded to bf16, the LSE is that of the weights before.
template <int R>
[[gnu::noinline]] void weigh_step(const Call& call, TileRowHead& head, const float* x, LinesAhead& ahead,
                                  char* weights) {
  const Floats reference = reference_of(head.largest), factor = splat(call.exp2_high);
  Floats total[2] = {}, rounded_total[2] = {};
  for (int half = 0; half < 2; ++half, x += tile_side * R, weights += 2 * weights_tile_bytes<R>) {
    Words rounded[R];
    ATTUNE_UNROLL
    for (int j = 0; j < R; ++j) {
      if (j % (R * 2 / fetches_per_weights) == 0) ahead.fetch();
      const Floats weight = unrounded_weight(load(x + j * width) - reference, factor);
      rounded[j] = (bits_as<Words>(weight) + 0x8000u) & 0xffff0000u;
      total[j % 2] += weight;
      rounded_total[j % 2] += bits_as<Floats>(rounded[j]);
    }
    transpose_keys(rounded, [&](int r, Words row) {
      store_bytes(weights + r * tile_row_bytes, row >> 16);
      store_bytes(weights + weights_tile_bytes<R> + r * tile_row_bytes, row);
    });
  }
  head.total += total[0] + total[1];
  head.rounded_total += rounded_total[0] + rounded_total[1];
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
