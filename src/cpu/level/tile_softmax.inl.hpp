// The softmax of the tile path, 32 keys at a time: scores to weights as the second product reads them.
#pragma once

#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// 2^((x - reference) * factor) with a relative error of 3e-6; exactly 0 below 2^-126, where the instructions take a
// hundred times as long. NaN stays NaN. The polynomial is minimax over [0, 1], relative.
inline Floats exact_weight(Floats x, Floats reference, Floats factor) {
  const Floats t = (x - reference) * factor;
  const Floats rest = _mm512_maskz_reduce_ps(0xffff, t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // t - whole
  Floats q = splat(1.3426684774e-02f);
  q = multiply_add(q, rest, splat(5.2242472768e-02f));
  q = multiply_add(q, rest, splat(2.4128019810e-01f));
  q = multiply_add(q, rest, splat(6.9304484129e-01f));
  q = multiply_add(q, rest, splat(1.0f));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, splat(-126.0f), _CMP_NLT_UQ), q, t);
}

// sum + even + odd
inline Floats add_pairs_of_bf16(Floats sum, Words pairs) {
  const Words ones = Words{} + 0x3f803f80u;
  return _mm512_dpbf16_ps(sum, bits_as<__m512bh>(pairs), bits_as<__m512bh>(ones));
}

// Multiplies what a group has summed up.
inline void rescale(const TileLayout& layout, const Group& group, const Floats (&factor)[group_vecs]) {
  const auto times_factor = [&](float* sums, int64_t count) {
    for (int64_t i = 0; i < count; i += group_rows) {
      ATTUNE_UNROLL
      for (int v = 0; v < group_vecs; ++v) store(sums + i + v * width, load(sums + i + v * width) * factor[v]);
    }
  };
  times_factor(group.rows.sums, group_rows);
  times_factor(group.rounded_sums, group_rows);
  if (group.has_out) times_factor(group.rows.out, layout.v_strips * 2 * tile_side * group_rows);
  if (group.has_special_out) times_factor(group.special_out, layout.v_strips * 2 * tile_side * group_rows);
}

// Moves references to the top of a step where `moves` is set, and rescales what was summed by the old ones.
inline void move_references(const Call& call, const TileLayout& layout, const Group& group,
                            const Floats (&top)[group_vecs], const Ints (&moves)[group_vecs]) {
  Floats factor[group_vecs];
  for (int v = 0; v < group_vecs; ++v) {
    float* const reference = group.rows.largest + v * width;
    const Floats before = load(reference);
    factor[v] = moves[v] ? exact_weight(before, top[v], splat(call.exp2_high)) : splat(1.0f);
    store(reference, moves[v] ? top[v] : before);
  }
  rescale(layout, group, factor);
}

// A step's scores to weights of two parts; adds them to the sums. False, and nothing added, if scores exceed their
// references by far; top is then the largest of each row. To look first would take another pass over the scores.
inline bool split_weights(const Call& call, const Group& group, const float* x, Floats excess, char* weights,
                          Floats (&top)[group_vecs]) {
  const Floats factor = splat(call.exp2_high);
  Floats reference[group_vecs], total[group_vecs];
  for (int v = 0; v < group_vecs; ++v) {
    top[v] = load(group.rows.largest + v * width);
    reference[v] = reference_of(top[v]);
    total[v] = load(group.rows.sums + v * width);
  }
  for (int64_t pair = 0; pair < step_keys / 2; ++pair) {
    char* const to = weights + pair * tile_row_bytes;
    ATTUNE_UNROLL
    for (int v = 0; v < group_vecs; ++v) {
      const Floats even_x = load(x + 2 * pair * group_rows + v * width);
      const Floats odd_x = load(x + (2 * pair + 1) * group_rows + v * width);
      top[v] = larger(odd_x, larger(even_x, top[v]));
      const Floats even = exact_weight(even_x, reference[v], factor), odd = exact_weight(odd_x, reference[v], factor);
      total[v] += even;
      total[v] += odd;
      const Words first = bits_as<Words>(even) + 0x8000u, second = bits_as<Words>(odd) + 0x8000u;
      store_bytes(to + v * tile_bytes, upper_halves(first, second));
      const Words low_even = bits_as<Words>(even - bits_as<Floats>(first & 0xffff0000u));
      const Words low_odd = bits_as<Words>(odd - bits_as<Floats>(second & 0xffff0000u));
      store_bytes(to + (2 + v) * tile_bytes, upper_halves(low_even + 0x8000u, low_odd + 0x8000u));
    }
  }
  Ints exceeds{};
  for (int v = 0; v < group_vecs; ++v) exceeds |= top[v] > load(group.rows.largest + v * width) + excess;
  if (any(exceeds)) return false;
  for (int v = 0; v < group_vecs; ++v) store(group.rows.sums + v * width, total[v]);
  return true;
}

inline void weigh_in_parts(const Call& call, const TileLayout& layout, const Group& group, const float* x,
                           char* weights, const auto& add_values) {
  const Floats excess = splat(call.exp2_high > most_excess / __FLT_MAX__ ? most_excess / call.exp2_high : __FLT_MAX__);
  Floats top[group_vecs];
  if (split_weights(call, group, x, excess, weights, top)) [[likely]]
    return;
  add_values();
  Ints moves[group_vecs];
  for (int v = 0; v < group_vecs; ++v) moves[v] = top[v] > load(group.rows.largest + v * width) + excess;
  move_references(call, layout, group, top, moves);
  split_weights(call, group, x, excess, weights, top);
}

// Weights of bf16, in 16-bit arithmetic and 32 at a time. A weight is 2^-distance times the highest that is allowed.
// Its distance is kept in 256ths, as 16 bits, and everything beyond is a weight of 0. A bf16 has 7 bits after its
// exponent: if 2^f were 1 + f for fractions, the bits of a weight would be those of the highest less half its distance.
// The difference is in a table, so that weights are 2^-(distance / 256) rounded to nearest.
constexpr float whole_distance = 0x1p24f;  // of a factor of 2: the upper 16 bits of an integer are 256ths
constexpr uint16_t highest_weight = (127 + static_cast<int>(most_excess)) << 7;  // 2^most_excess as bf16

struct WeightCurve {
  alignas(vector_bytes) uint8_t at[128];

  // The bits of a weight are less by half of (distance + at[distance / 2 % 128]), rounded up.
  constexpr WeightCurve() : at() {
    constexpr double root = 0.99729605608547012;  // 2^(-1/256)
    double power = 2;                             // 2 * root^f
    const auto bits_below = [&] {
      const int below = (static_cast<int>(256 * (2 - power)) + 1) / 2;
      power *= root;
      return below;
    };
    for (int i = 0; i < 128; ++i) {
      const int first = bits_below() - i, second = bits_below() - i - 1;
      at[i] = static_cast<uint8_t>(first + second);
    }
  }
};
constexpr WeightCurve weight_curve;

// How the scores x of a row become distances: (x - origin) * factor + bound. A score that exceeds the reference by
// most_excess has a distance of 0. The origin is 0, which takes one instruction less, unless the reference is so large
// that rounding the bound would be felt.
inline float distance_factor(const Call& call) { return -whole_distance * call.exp2_high; }
inline void set_distances(const Call& call, Group& group) {
  constexpr float highest = (most_excess + 0.5f / 256) * whole_distance, most_logarithm = 0x1p12f;
  Ints not_begun{}, far{};
  for (int v = 0; v < group_vecs; ++v) {
    const Floats largest = load(group.rows.largest + v * width), reference = reference_of(largest);
    const Floats logarithm = reference * call.exp2_high;
    const Ints is_far = (logarithm > most_logarithm) | (logarithm < -most_logarithm);
    not_begun |= largest == -float_infinity;
    far |= is_far;
    store(group.origin + v * width, is_far ? reference : Floats{});
    store(group.bound + v * width,
          is_far ? splat(highest) : multiply_add(logarithm, splat(whole_distance), splat(highest)));
  }
  group.all_begun = !any(not_begun);
  group.some_far = any(far);
}

// A step's scores to weights. What is added to the sums, and the greatest distance as the bits of a float: above those
// of infinity where a score is NaN or exceeds its reference by far.
template <bool exact_sums>
class StepWeights {
 public:
  StepWeights(const Call& call, const Group& group, const float* x, char* weights) {
    group.some_far ? weigh<true>(call, group, x, weights) : weigh<false>(call, group, x, weights);
  }

  bool fit() const {
    Ints unfit{};
    for (int v = 0; v < group_vecs; ++v) unfit |= is_unfit(v);
    return !any(unfit);
  }
  Ints is_unfit(int v) const { return greatest_[v] > 0x7f800000u; }

  void add_to(const Group& group) const {
    for (int v = 0; v < group_vecs; ++v) {
      if constexpr (exact_sums) store(group.rows.sums + v * width, total_[v]);
      store(group.rounded_sums + v * width, rounded_total_[v]);
    }
  }

 private:
  // A row's weights are the same whether its neighbours are far or not: its origin is 0 then.
  template <bool some_far>
  void weigh(const Call& call, const Group& group, const float* x, char* weights) {
    const auto low = load_bytes<__m512i>(weight_curve.at), high = load_bytes<__m512i>(weight_curve.at + vector_bytes);
    const __m512i highest = _mm512_set1_epi16(highest_weight);
    const Floats factor = splat(distance_factor(call));
    Floats origin[group_vecs], bound[group_vecs], reference[group_vecs];
    for (int v = 0; v < group_vecs; ++v) {
      origin[v] = load(group.origin + v * width);
      bound[v] = load(group.bound + v * width);
      reference[v] = reference_of(load(group.rows.largest + v * width));
      total_[v] = load(group.rows.sums + v * width);
      rounded_total_[v] = load(group.rounded_sums + v * width);
      greatest_[v] = Words{};
    }
    const auto distance_of = [&](Floats score, int v) {
      return multiply_add(some_far ? score - origin[v] : score, factor, bound[v]);
    };
    for (int64_t pair = 0; pair < step_keys / 2; ++pair) {
      ATTUNE_UNROLL
      for (int v = 0; v < group_vecs; ++v) {
        const Floats even_x = load(x + 2 * pair * group_rows + v * width);
        const Floats odd_x = load(x + (2 * pair + 1) * group_rows + v * width);
        const Floats even = distance_of(even_x, v), odd = distance_of(odd_x, v);
        greatest_[v] = greater(greatest_[v], greater(bits_as<Words>(even), bits_as<Words>(odd)));
        const __m512i distance = bits_as<__m512i>(upper_halves(integers(even), integers(odd)));
        const __m512i curve =
            _mm512_maskz_permutex2var_epi8(0x5555555555555555u, low, _mm512_srli_epi16(distance, 1), high);
        const auto pairs = bits_as<Words>(_mm512_subs_epu16(highest, _mm512_avg_epu16(distance, curve)));
        store_bytes(weights + v * tile_bytes + pair * tile_row_bytes, pairs);
        rounded_total_[v] = add_pairs_of_bf16(rounded_total_[v], pairs);
        if constexpr (exact_sums) {
          total_[v] += exact_weight(even_x, reference[v], splat(call.exp2_high));
          total_[v] += exact_weight(odd_x, reference[v], splat(call.exp2_high));
        }
      }
    }
  }

  static Words greater(Words a, Words b) { return a > b ? a : b; }
  // All ones for what is no such integer.
  static Words integers(Floats v) { return bits_as<Words>(_mm512_maskz_cvttps_epu32(0xffff, v)); }

  Floats total_[group_vecs], rounded_total_[group_vecs];
  Words greatest_[group_vecs];
};

// The largest of each row's scores. A row with a score that is NaN or infinite has no softmax: its sum becomes NaN, and
// its largest -inf.
inline void find_tops(const Group& group, const float* x, Floats (&top)[group_vecs]) {
  for (int v = 0; v < group_vecs; ++v) {
    top[v] = splat(-float_infinity);
    Ints undefined{};
    for (int64_t key = 0; key < step_keys; ++key) {
      const Floats score = load(x + key * group_rows + v * width);
      undefined |= (score != score) | (score == float_infinity);
      top[v] = larger(score, top[v]);
    }
    if (!any(undefined)) continue;
    top[v] = undefined ? splat(-float_infinity) : top[v];
    float* const sums = group.rounded_sums + v * width;
    store(sums, undefined ? splat(__builtin_nanf("")) : load(sums));
  }
}

// A step's scores to weights, and their sums. add_values: adds the values of the steps before, whose weights are
// relative to the references so far.
template <bool exact_sums>
void weigh_in_bf16(const Call& call, const TileLayout& layout, Group& group, const float* x, char* weights,
                   const auto& add_values) {
  Floats top[group_vecs];
  if (!group.all_begun) {
    find_tops(group, x, top);
    for (int v = 0; v < group_vecs; ++v) {
      float* const reference = group.rows.largest + v * width;
      store(reference, load(reference) == -float_infinity ? top[v] : load(reference));
    }
    set_distances(call, group);
  }
  const StepWeights<exact_sums> step(call, group, x, weights);
  if (step.fit()) [[likely]]
    return step.add_to(group);
  add_values();
  find_tops(group, x, top);
  Ints moves[group_vecs];
  for (int v = 0; v < group_vecs; ++v) moves[v] = step.is_unfit(v) & (top[v] > load(group.rows.largest + v * width));
  move_references(call, layout, group, top, moves);
  set_distances(call, group);
  StepWeights<exact_sums>(call, group, x, weights).add_to(group);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
