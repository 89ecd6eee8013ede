// The softmax of the tile path, 32 keys at a time: scores to weights as the second product reads them.
#pragma once

#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// How accurate weights are before they are rounded: to 8e-5, a tenth of what rounding to bf16 changes, or to 3e-6, for
// the sum that an LSE is made of and for two parts.
enum class Accuracy { rounded, exact };

// 2^((x - reference) * factor); exactly 0 below 2^-126, where the instructions take a hundred times as long. NaN stays
// NaN. The polynomials are minimax over [0, 1], relative. A weight that will be rounded is between 1 and 2 times a
// power of 2, and comes with half a unit of bf16, 2^-8 times that power: cutting off what follows then rounds to
// nearest.
template <Accuracy accuracy>
Floats weight_of(Floats x, Floats reference, Floats factor) {
  const Floats t = (x - reference) * factor;
  const Floats rest = _mm512_maskz_reduce_ps(0xffff, t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // t - whole
  Floats q;
  if constexpr (accuracy == Accuracy::exact) {
    q = splat(1.3426684774e-02f);
    q = multiply_add(q, rest, splat(5.2242472768e-02f));
    q = multiply_add(q, rest, splat(2.4128019810e-01f));
    q = multiply_add(q, rest, splat(6.9304484129e-01f));
    q = multiply_add(q, rest, splat(1.0f));
  } else {
    q = splat(7.8024521470e-02f);
    q = multiply_add(q, rest, splat(2.2606715560e-01f));
    q = multiply_add(q, rest, splat(6.9583356380e-01f));
    q = multiply_add(q, rest, splat(9.9992519617e-01f + 0x1p-8f));
  }
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, splat(-126.0f), _CMP_NLT_UQ), q, t);
}

// The upper halves of each two neighbouring keys' words, pairwise.
inline Words upper_halves(Words even, Words odd) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  return bits_as<Words>(__builtin_shufflevector(bits_as<AllHalves>(even), bits_as<AllHalves>(odd), 1, 33, 3, 35, 5, 37,
                                                7, 39, 9, 41, 11, 43, 13, 45, 15, 47, 17, 49, 19, 51, 21, 53, 23, 55,
                                                25, 57, 27, 59, 29, 61, 31, 63));
}

// sum + even + odd
inline Floats add_pairs_of_bf16(Floats sum, Words pairs) {
  const Words ones = Words{} + 0x3f803f80u;
  return _mm512_dpbf16_ps(sum, bits_as<__m512bh>(pairs), bits_as<__m512bh>(ones));
}

// Moves the references that the scores exceed by far, and rescales what was summed by the old ones.
inline void move_references(const Call& call, const TileLayout& layout, const Group& group,
                            const Floats (&top)[group_vecs], Floats excess) {
  const Tile<float>& rows = group.rows;
  Floats factor[group_vecs];
  for (int v = 0; v < group_vecs; ++v) {
    const Floats before = load(rows.largest + v * width);
    const Ints moves = top[v] > before + excess;
    const Floats now = moves ? top[v] : before;
    factor[v] = moves ? weight_of<Accuracy::exact>(before, now, splat(call.exp2_high)) : splat(1.0f);
    store(rows.largest + v * width, now);
    store(rows.sums + v * width, load(rows.sums + v * width) * factor[v]);
    store(group.rounded_sums + v * width, load(group.rounded_sums + v * width) * factor[v]);
  }
  const auto rescale = [&](float* out) {
    for (int64_t i = 0; i < layout.v_strips * 2 * tile_side * group_rows; i += group_rows) {
      ATTUNE_UNROLL
      for (int v = 0; v < group_vecs; ++v) store(out + i + v * width, load(out + i + v * width) * factor[v]);
    }
  };
  rescale(rows.out);
  if (group.has_special_out) rescale(group.special_out);
}

// A step's scores to weights, in parts; adds them to the sums. False, and nothing added, if scores exceed their
// references by far; top is then the largest of each row. To look first would take another pass over the scores. With
// one part the weights, and so O, are the same with and without exact sums.
template <int Parts, Accuracy sums>
bool tile_weights(const Call& call, const Group& group, const float* x, Floats excess, char* weights,
                  Floats (&top)[group_vecs]) {
  static_assert(Parts == 1 || sums == Accuracy::exact);
  const Floats factor = splat(call.exp2_high);
  Floats reference[group_vecs], total[group_vecs], rounded_total[group_vecs];
  for (int v = 0; v < group_vecs; ++v) {
    top[v] = load(group.rows.largest + v * width);
    reference[v] = reference_of(top[v]);
    total[v] = load(group.rows.sums + v * width);
    rounded_total[v] = load(group.rounded_sums + v * width);
  }
  for (int64_t pair = 0; pair < step_keys / 2; ++pair) {
    char* const to = weights + pair * tile_row_bytes;
    ATTUNE_UNROLL
    for (int v = 0; v < group_vecs; ++v) {
      const Floats even_x = load(x + 2 * pair * group_rows + v * width);
      const Floats odd_x = load(x + (2 * pair + 1) * group_rows + v * width);
      top[v] = larger(odd_x, larger(even_x, top[v]));
      Floats even{}, odd{};
      if constexpr (sums == Accuracy::exact) {
        even = weight_of<Accuracy::exact>(even_x, reference[v], factor);
        odd = weight_of<Accuracy::exact>(odd_x, reference[v], factor);
        total[v] += even;
        total[v] += odd;
      }
      if constexpr (Parts == 1) {
        // Of a weight between 1 and 2 times a power of 2, half a unit of bf16 is 2^-8 times that power: cutting off
        // what follows then rounds to nearest.
        const Floats first = weight_of<Accuracy::rounded>(even_x, reference[v], factor);
        const Floats second = weight_of<Accuracy::rounded>(odd_x, reference[v], factor);
        const Words pairs = upper_halves(bits_as<Words>(first), bits_as<Words>(second));
        store_bytes(to + v * tile_bytes, pairs);
        rounded_total[v] = add_pairs_of_bf16(rounded_total[v], pairs);
      } else {
        const Words first = bits_as<Words>(even) + 0x8000u, second = bits_as<Words>(odd) + 0x8000u;
        store_bytes(to + v * tile_bytes, upper_halves(first, second));
        const Words low_even = bits_as<Words>(even - bits_as<Floats>(first & 0xffff0000u));
        const Words low_odd = bits_as<Words>(odd - bits_as<Floats>(second & 0xffff0000u));
        store_bytes(to + (2 + v) * tile_bytes, upper_halves(low_even + 0x8000u, low_odd + 0x8000u));
      }
    }
  }
  Ints exceeds{};
  for (int v = 0; v < group_vecs; ++v) exceeds |= top[v] > load(group.rows.largest + v * width) + excess;
  if (any(exceeds)) return false;
  for (int v = 0; v < group_vecs; ++v) {
    store(group.rows.sums + v * width, total[v]);
    store(group.rounded_sums + v * width, rounded_total[v]);
  }
  return true;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
