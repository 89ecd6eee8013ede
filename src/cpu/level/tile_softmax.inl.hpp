// The softmax of the tile path, 32 keys at a time: scores to weights as the second product reads them.
#pragma once

#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// 2^(difference * factor) with a relative error of 3e-6; exactly 0 below 2^-126, where the instructions take a
// hundred times as long. NaN stays NaN. The polynomial is minimax over [0, 1], relative.
inline Floats unrounded_weight(Floats difference, Floats factor) {
  const Floats t = difference * factor;
  const Floats rest = _mm512_maskz_reduce_ps(0xffff, t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // t - whole
  Floats q = splat(1.3426684774e-02f);
  q = multiply_add(q, rest, splat(5.2242472768e-02f));
  q = multiply_add(q, rest, splat(2.4128019810e-01f));
  q = multiply_add(q, rest, splat(6.9304484129e-01f));
  q = multiply_add(q, rest, splat(1.0f));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, splat(-126.0f), _CMP_NLT_UQ), q, t);
}

// 2^(difference * factor) of n vectors with the precision of float32, and exactly 0 below 2^-100: parts of it would lie
// below 2^-126.
template <int n>
ATTUNE_INLINE void float32_weights(const Call& call, const Floats (&difference)[n], Floats (&weights)[n]) {
  const auto e = exp2_parts<true, -99>(difference, splat(call.exp2_high), splat(call.exp2_low));
  ATTUNE_UNROLL
  for (int i = 0; i < n; ++i) weights[i] = e.tiny[i] ? Floats{} : multiply_add(e.fraction[i], e.power[i], e.power[i]);
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
  times_factor(group.sums_rest, group_rows);
  if (group.has_out) times_factor(group.rows.out, layout.out_count());
  if (group.has_special_out) times_factor(group.special_out, layout.out_count());
  if (!group.has_whole_out) return;
  for (int64_t i = 0; i < layout.out_count(); i += width) {
    double* const whole = group.whole_out + i;
    store(whole, load(whole) * low_doubles(factor[i / width % group_vecs]));
    store(whole + double_width, load(whole + double_width) * high_doubles(factor[i / width % group_vecs]));
  }
}

// Moves references to the top of a step where `moves` is set, and rescales what was summed by the old ones.
template <int Parts>
void move_references(const Call& call, const TileLayout& layout, const Group& group, const Floats (&top)[group_vecs],
                     const Ints (&moves)[group_vecs]) {
  Floats factor[group_vecs];
  for (int v = 0; v < group_vecs; ++v) {
    float* const reference = group.rows.largest + v * width;
    const Floats before = load(reference);
    Floats weight[1];
    if constexpr (Parts == 3)
      float32_weights(call, {before - top[v]}, weight);
    else
      weight[0] = unrounded_weight(before - top[v], splat(call.exp2_high));
    factor[v] = moves[v] ? weight[0] : splat(1.0f);
    store(reference, moves[v] ? top[v] : before);
  }
  rescale(layout, group, factor);
}

// A step's scores become weights a pair of keys at a time, between the products of the next step's scores: tiles and
// vectors compute at the same time. The compiler must not move them past a product, nor keep sums in memory: for that,
// all that sees the object has to be inline.
template <typename A, typename B>
ATTUNE_INLINE void stay_here(A& a, B& b) {
  asm volatile("" : "+v"(a), "+v"(b) : : "memory");
}
static_assert(group_vecs == 2);

// Weights of two or three parts.
template <int Parts>
class SplitWeights {
 public:
  ATTUNE_INLINE SplitWeights(const Call& call, const Group& group, const float* x, char* weights)
      : call_(call),
        factor_(splat(call.exp2_high)),
        excess_(splat(call.exp2_high > most_excess / __FLT_MAX__ ? most_excess / call.exp2_high : __FLT_MAX__)),
        x_(x),
        to_(weights) {
    begin<0>(group);
    begin<1>(group);
  }

  // The next pairs, as long as there are some.
  ATTUNE_INLINE void advance(int64_t pairs) {
    for (; pairs > 0 && left_ > 0; --pairs, --left_, x_ += 2 * group_rows, to_ += tile_row_bytes) weigh_pair();
  }
  ATTUNE_INLINE void finish() { advance(left_); }

  // Whether no score exceeds its reference by far; otherwise the weights are void.
  ATTUNE_INLINE bool fit(const Group& group) const {
    return !any(exceeds_reference<0>(group) | exceeds_reference<1>(group));
  }
  ATTUNE_INLINE void add_to(const Group& group) const {
    add_total<0>(group);
    add_total<1>(group);
  }
  // Where references have to move, and to what.
  ATTUNE_INLINE void find_moves(const Call&, const Group& group, const float*, Floats (&top)[group_vecs],
                                Ints (&moves)[group_vecs]) const {
    top[0] = top_[0];
    top[1] = top_[1];
    moves[0] = exceeds_reference<0>(group);
    moves[1] = exceeds_reference<1>(group);
  }

 private:
  template <int v>
  ATTUNE_INLINE void begin(const Group& group) {
    top_[v] = load(group.rows.largest + v * width);
    reference_[v] = reference_of(top_[v]);
    total_[v] = Parts == 3 ? Floats{} : load(group.rows.sums + v * width);
  }
  // Both vectors at once, of both keys: each waits for one operation after the other, and together they wait less.
  ATTUNE_INLINE void weigh_pair() {
    constexpr int n = 2 * group_vecs;
    Floats weight[n], difference[n];  // even key, odd key; of each first vector, second vector
    ATTUNE_UNROLL
    for (int i = 0; i < n; ++i) {
      const Floats x = load(x_ + i * width);
      Floats& top = top_[i % group_vecs];
      top = larger(x, top);
      difference[i] = x - reference_[i % group_vecs];
    }
    if constexpr (Parts == 3) {
      float32_weights(call_, difference, weight);
    } else {
      ATTUNE_UNROLL
      for (int i = 0; i < n; ++i) weight[i] = unrounded_weight(difference[i], factor_);
    }
    ATTUNE_UNROLL
    for (int i = 0; i < n; ++i) total_[i % group_vecs] += weight[i];
    // The last of three parts needs no rounding, and so the others need none either.
    constexpr uint32_t half = Parts == 3 ? 0 : 0x8000u;
    ATTUNE_UNROLL
    for (int part = 0; part < Parts; ++part) {
      Words bits[n];
      ATTUNE_UNROLL
      for (int i = 0; i < n; ++i) {
        bits[i] = bits_as<Words>(weight[i]) + half;
        weight[i] -= bits_as<Floats>(bits[i] & 0xffff0000u);
      }
      ATTUNE_UNROLL
      for (int v = 0; v < group_vecs; ++v)
        store_bytes(to_ + (part * group_vecs + v) * tile_bytes, upper_halves(bits[v], bits[group_vecs + v]));
    }
    stay_here(top_[0], total_[0]);
    stay_here(top_[1], total_[1]);
  }
  // Of three parts, a step's weights are summed apart, and what float32 cannot hold of the sums of steps is kept.
  template <int v>
  ATTUNE_INLINE void add_total(const Group& group) const {
    float* const sums = group.rows.sums + v * width;
    if constexpr (Parts == 3) {
      const Floats before = load(sums), sum = before + total_[v], added = sum - before;
      const Floats rest = (before - (sum - added)) + (total_[v] - added);
      store(group.sums_rest + v * width, load(group.sums_rest + v * width) + rest);
      store(sums, sum);
    } else {
      store(sums, total_[v]);
    }
  }
  template <int v>
  ATTUNE_INLINE Ints exceeds_reference(const Group& group) const {
    return top_[v] > load(group.rows.largest + v * width) + excess_;
  }

  const Call& call_;
  Floats factor_, excess_, reference_[group_vecs], total_[group_vecs], top_[group_vecs];
  const float* x_;
  char* to_;
  int64_t left_ = step_pairs;
};

// Weights of bf16, in 16-bit arithmetic and 32 at a time. A weight is 2^-distance times the highest that is allowed.
// Its distance is kept in 256ths, as 16 bits, and everything beyond is a weight of 0. A bf16 has 7 bits after its
// exponent: if 2^f were 1 + f for fractions, the bits of a weight would be those of the highest less half its distance.
// The difference is in a table, so that weights are 2^-(distance / 256) rounded to nearest.
constexpr float whole_distance = 256;                                            // of a factor of 2
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
// most_excess has a distance of 0. The bound is larger by `zero_distance`, from where on floats have 7 bits after the
// point up to twice as much, and by a half: so a distance, rounded, is in the 16 bits before those 7, unless the bits
// of the exponent differ. The origin is 0, which takes one instruction less, unless the reference is too large for
// that.
constexpr float zero_distance = 0x1p16f, most_logarithm = 0x1p10f;
// The bits at which the two bytes of a distance begin, in two words of 32 bits and in each half of them.
constexpr int64_t distance_bytes = 0x2f27'2f27'0f07'0f07;
inline float distance_factor(const Call& call) { return -whole_distance * call.exp2_high; }
inline void set_distances(const Call& call, Group& group) {
  Ints far{};
  for (int v = 0; v < group_vecs; ++v) {
    const Floats reference = reference_of(load(group.rows.largest + v * width));
    const Floats logarithm = reference * call.exp2_high;
    const Ints is_far = (logarithm > most_logarithm) | (logarithm < -most_logarithm);
    far |= is_far;
    store(group.origin + v * width, is_far ? reference : Floats{});
    const Floats bound = splat(zero_distance + most_excess * whole_distance + 0.5f);
    store(group.bound + v * width, is_far ? bound : bound + logarithm * whole_distance);
  }
  group.some_far = any(far);
}
// A reference near `top` whose bound needs no rounding: that would change all weights of a row, but not what was summed
// by an earlier reference. It is nearer than a 16th of what tells two distances apart, so that scores next to the top,
// whose weights Ideal rounds to 1, share a distance: where they nearly cancel each other in O, nothing else would do.
inline Floats reference_near(const Call& call, Floats top) {
  constexpr float most = most_logarithm * whole_distance,
                  coarse = 3 * most;  // where floats have 4 bits after the point
  const float unit = whole_distance * call.exp2_high;
  if (unit == 0) return top;
  const Floats distance = top * unit, rounded = distance + coarse - coarse;
  const Ints is_far = (distance > most) | (distance < -most);
  return is_far ? top : rounded / unit;
}

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

// A step's weights of bf16; see SplitWeights. Where it is not `careful`, all distances must be below 2^16, and origins
// 0; otherwise the weights do not fit, though careful ones may. Those that fit are the same either way.
template <bool exact_sums, bool careful>
class Bf16Weights {
 public:
  ATTUNE_INLINE Bf16Weights(const Call& call, const Group& group, const float* x, char* weights)
      : low_(load_bytes<__m512i>(weight_curve.at)),
        high_(load_bytes<__m512i>(weight_curve.at + vector_bytes)),
        highest_(_mm512_set1_epi16(highest_weight)),
        zero_(bits_as<__m512i>(splat(zero_distance))),
        distance_bytes_(_mm512_set1_epi64(distance_bytes)),
        factor_(splat(distance_factor(call))),
        exact_factor_(splat(call.exp2_high)),
        x_(x),
        to_(weights) {
    begin<0>(group);
    begin<1>(group);
    stay_here(low_, high_);  // in registers, and not loaded again for each pair
    stay_here(highest_, zero_);
    stay_here(distance_bytes_, factor_);
    asm volatile("" : "+k"(odd_));
  }

  ATTUNE_INLINE void advance(int64_t pairs) {
    for (; pairs > 0 && left_ > 0; --pairs, --left_, x_ += 2 * group_rows, to_ += tile_row_bytes) {
      weigh_pair<0>();
      weigh_pair<1>();
    }
  }
  ATTUNE_INLINE void finish() { advance(left_); }

  ATTUNE_INLINE bool fit(const Group&) const { return !any(is_unfit<0>() | is_unfit<1>()); }
  ATTUNE_INLINE void add_to(const Group& group) const {
    store(group.rounded_sums, rounded_total_[0]);
    store(group.rounded_sums + width, rounded_total_[1]);
    if constexpr (exact_sums) {
      store(group.rows.sums, total_[0]);
      store(group.rows.sums + width, total_[1]);
    }
  }
  ATTUNE_INLINE void find_moves(const Call& call, const Group& group, const float* x, Floats (&top)[group_vecs],
                                Ints (&moves)[group_vecs]) const {
    static_assert(careful);
    find_tops(group, x, top);
    moves[0] = is_unfit<0>() & (top[0] > load(group.rows.largest));
    moves[1] = is_unfit<1>() & (top[1] > load(group.rows.largest + width));
    for (Floats& reference : top) reference = reference_near(call, reference);
  }

 private:
  template <int v>
  ATTUNE_INLINE void begin(const Group& group) {
    origin_[v] = load(group.origin + v * width);
    bound_[v] = load(group.bound + v * width);
    reference_[v] = reference_of(load(group.rows.largest + v * width));
    total_[v] = load(group.rows.sums + v * width);
    rounded_total_[v] = load(group.rounded_sums + v * width);
    unfit_[v] = Words{};
  }
  template <int v>
  ATTUNE_INLINE void weigh_pair() {
    const Floats even_x = load(x_ + v * width), odd_x = load(x_ + group_rows + v * width);
    const Words even = distance_of<v>(even_x), odd = distance_of<v>(odd_x);
    const __m512i evens = _mm512_maskz_multishift_epi64_epi8(~0ull, distance_bytes_, bits_as<__m512i>(even));
    const __m512i distance = _mm512_mask_multishift_epi64_epi8(evens, odd_, distance_bytes_, bits_as<__m512i>(odd));
    const __m512i curve =
        _mm512_maskz_permutex2var_epi8(0x5555555555555555u, low_, _mm512_srli_epi16(distance, 1), high_);
    const auto pairs = bits_as<Words>(_mm512_subs_epu16(highest_, _mm512_avg_epu16(distance, curve)));
    store_bytes(to_ + v * tile_bytes, pairs);
    rounded_total_[v] = add_pairs_of_bf16(rounded_total_[v], pairs);
    if constexpr (exact_sums) {
      total_[v] += unrounded_weight(even_x - reference_[v], exact_factor_);
      total_[v] += unrounded_weight(odd_x - reference_[v], exact_factor_);
    }
    stay_here(unfit_[v], rounded_total_[v]);
  }
  // With its fraction, and the bits of zero_distance's exponent before it.
  template <int v>
  ATTUNE_INLINE Words distance_of(Floats score) {
    if constexpr (careful) {
      const Floats distance = multiply_add(score - origin_[v], factor_, bound_[v]);
      unfit_[v] |= bits_as<Words>(~(distance >= zero_distance));
      const Floats most = splat(2 * zero_distance - 1);
      return bits_as<Words>(distance < most ? distance : most);
    }
    const Words distance = bits_as<Words>(multiply_add(score, factor_, bound_[v]));
    constexpr int a_or_b_xor_c = 0xf6;  // spelled out, because compilers make three instructions of two such steps
    unfit_[v] = bits_as<Words>(
        _mm512_ternarylogic_epi32(bits_as<__m512i>(unfit_[v]), bits_as<__m512i>(distance), zero_, a_or_b_xor_c));
    return distance;
  }
  template <int v>
  ATTUNE_INLINE Ints is_unfit() const {
    return (unfit_[v] & 0xff800000u) != 0u;
  }

  __m512i low_, high_, highest_, zero_, distance_bytes_;
  Floats factor_, exact_factor_, origin_[group_vecs], bound_[group_vecs], reference_[group_vecs];
  Floats total_[group_vecs], rounded_total_[group_vecs];
  __mmask64 odd_ = 0xccccccccccccccccu;
  Words unfit_[group_vecs];  // exponents that differ where a score is NaN or exceeds its reference by far
  const float* x_;
  char* to_;
  int64_t left_ = step_pairs;
};

// Rows that have no reference yet get one from a step's scores.
template <int Parts>
void begin_references(const Call& call, Group& group, const float* x) {
  if (group.all_begun) return;
  Floats top[group_vecs];
  Ints not_begun{};
  if constexpr (Parts == 1) {
    find_tops(group, x, top);
    for (Floats& reference : top) reference = reference_near(call, reference);
  } else {
    for (Floats& reference : top) reference = splat(-float_infinity);
    raise_largest(x, step_keys, top);
  }
  for (int v = 0; v < group_vecs; ++v) {
    float* const reference = group.rows.largest + v * width;
    const Floats begun = load(reference) == -float_infinity ? top[v] : load(reference);
    not_begun |= begun == -float_infinity;
    store(reference, begun);
  }
  group.all_begun = !any(not_begun);
  if constexpr (Parts == 1) set_distances(call, group);
}

// The class of a step's weights, of those that may not fit and of those that do unless a reference has to move.
template <Format format, bool exact_sums, bool careful>
struct WeightsOf {
  using Type = SplitWeights<format.parts>;
};
template <bool exact_sums, bool careful>
struct WeightsOf<bf16_whole, exact_sums, careful> {
  using Type = Bf16Weights<exact_sums, careful>;
};

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
