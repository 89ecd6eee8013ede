// The softmax of the row path on the tile unit: lanes are rows, or 16 / R keys of R rows.
#pragma once

#include "cpu/level/tile_row_operands.inl.hpp"
#include "cpu/level/tile_softmax.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Vectors of scores in a step of keys.
template <int R>
constexpr int step_vectors = step_keys / vector_keys<R>;

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

// Pairs of weights, one word each, to rows of 16 pairs in the order of place_of_pair.
inline void transpose_weights(Words (&u)[4], char* to) {
  const Words a = low_words(u[0], u[1]), b = high_words(u[0], u[1]);
  const Words c = low_words(u[2], u[3]), d = high_words(u[2], u[3]);
  store_bytes(to, low_pairs(a, c));
  store_bytes(to + tile_row_bytes, high_pairs(a, c));
  store_bytes(to + 2 * tile_row_bytes, low_pairs(b, d));
  store_bytes(to + 3 * tile_row_bytes, high_pairs(b, d));
}
inline void transpose_weights(Words (&u)[8], char* to) {
  Words quads[2][4];
  ATTUNE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Words* const of = u + half * 4;
    const Words a = low_words(of[0], of[1]), b = high_words(of[0], of[1]);
    const Words c = low_words(of[2], of[3]), d = high_words(of[2], of[3]);
    quads[half][0] = low_pairs(a, c);
    quads[half][1] = high_pairs(a, c);
    quads[half][2] = low_pairs(b, d);
    quads[half][3] = high_pairs(b, d);
  }
  ATTUNE_UNROLL
  for (int r = 0; r < 4; ++r) {
    store_bytes(to + r * tile_row_bytes, even_quads(quads[0][r], quads[1][r]));
    store_bytes(to + (r + 4) * tile_row_bytes, odd_quads(quads[0][r], quads[1][r]));
  }
}
inline void transpose_weights(Words (&u)[16], char* to) { transpose(u, to); }

// Looks for larger scores in the x of `steps` steps of keys, all of which will have weights relative to them.
template <int R>
[[gnu::noinline]] void raise_largest(const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head,
                                     int64_t steps) {
  constexpr int chains = 4;
  static_assert(step_vectors<R> % chains == 0);
  Floats tops[chains] = {head.largest, head.largest, head.largest, head.largest};
  for (const float* x = head.x; x < head.x + steps * step_keys * R; x += chains * width) {
    ATTUNE_UNROLL
    for (int chain = 0; chain < chains; ++chain) tops[chain] = larger(load(x + chain * width), tops[chain]);
  }
  const Floats top = largest_of_rows<R>(larger(larger(tops[0], tops[1]), larger(tops[2], tops[3])));
  if (any(top > head.largest)) rescale_tile_rows(call, scratch, head, top);
}

// The weights of a step of keys. O is the mean by the weights rounded to bf16, the LSE is that of the weights before.
template <int R>
[[gnu::noinline]] void weigh_step(const Call& call, TileRowHead& head, const float* x, char* weights) {
  const Floats reference = reference_of(head.largest), factor = splat(call.exp2_high);
  Floats even_total{}, odd_total{}, even_rounded{}, odd_rounded{};
  Words pairs[step_vectors<R> / 2];
  ATTUNE_UNROLL
  for (int j = 0; j < step_vectors<R> / 2; ++j) {
    const Floats even = unrounded_weight(load(x + 2 * j * width) - reference, factor);
    const Floats odd = unrounded_weight(load(x + (2 * j + 1) * width) - reference, factor);
    even_total += even;
    odd_total += odd;
    const Words rounded_odd = (bits_as<Words>(odd) + 0x8000u) & 0xffff0000u;
    pairs[j] = (bits_as<Words>(even) + 0x8000u) >> 16 | rounded_odd;
    even_rounded += bits_as<Floats>(pairs[j] << 16);
    odd_rounded += bits_as<Floats>(rounded_odd);
  }
  transpose_weights(pairs, weights);
  head.total += even_total + odd_total;
  head.rounded_total += even_rounded + odd_rounded;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
