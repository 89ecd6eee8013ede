// exp2, tanh, and what happens to scores between the two products: softcap, bias, masks, and the weights.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr float float_infinity = __builtin_inff();

// 2^t, t = x * (high + low), as power * (1 + fraction). Where `tiny` is set, 2^t < 2^-126 counts as 0, and the two
// others mean nothing. NaN stays NaN.
struct Exp2 {
  Floats fraction, power;
  Ints tiny;
};

// Relative error of 1 + fraction: 2e-9 by the polynomial (minimax over [-0.5, 0.5] with the constant term held at 1),
// and the rounding of fraction, which vanishes with t. Without `use_low`, t is off by its rounding as well.
template <bool use_low>
Exp2 exp2_parts(Floats x, Floats high, Floats low) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits; 127 more make it an exponent field.
  constexpr float rounder = 0x1.8p23f + 127;
  const Floats t = x * high;
  const Floats shifted = t + rounder;
  const Floats whole = shifted - rounder;
  Floats rest = multiply_add(x, high, -whole);
  if constexpr (use_low) rest = multiply_add(x, low, rest);
  Floats q = splat(1.5353417977e-04f);
  q = multiply_add(q, rest, splat(1.3398814335e-03f));
  q = multiply_add(q, rest, splat(9.6184367625e-03f));
  q = multiply_add(q, rest, splat(5.5503326146e-02f));
  q = multiply_add(q, rest, splat(2.4022647921e-01f));
  q = multiply_add(q, rest, splat(6.9314720279e-01f));
  return {q * rest, bits_as<Floats>(bits_as<Words>(shifted) << 23), t < -126.0f};
}

// 2^t per lane, as floats or, with the full precision of its parts, as doubles.
template <typename T>
struct Weights;
template <>
struct Weights<float> {
  Floats part[1];
};
template <>
struct Weights<double> {
  Doubles part[2];
};

template <typename T>
Weights<T> exp2_of(Floats x, Floats high, Floats low) {
  if constexpr (sizeof(T) == sizeof(float)) {
    const Exp2 e = exp2_parts<false>(x, high, low);
    return {{e.tiny ? Floats{} : multiply_add(e.fraction, e.power, e.power)}};
  } else {
    const Exp2 e = exp2_parts<true>(x, high, low);
    const Floats fraction = e.tiny ? Floats{} : e.fraction;
    const Floats power = e.tiny ? Floats{} : e.power;
    return {{(1.0 + low_doubles(fraction)) * low_doubles(power), (1.0 + high_doubles(fraction)) * high_doubles(power)}};
  }
}

// tanh through expm1(-2|x|), which is accurate to a few units in the last place also near 0.
inline Floats tanh_of(Floats x) {
  const Words sign = bits_as<Words>(x) & 0x80000000u;
  const Floats magnitude = bits_as<Floats>(bits_as<Words>(x) ^ sign);
  const Floats limited = magnitude > 40.0f ? splat(40.0f) : magnitude;
  const Exp2 e = exp2_parts<true>(limited, splat(-2.88539004e+00f), splat(-3.8519089e-08f));
  const Floats minus_expm1 = (1.0f - e.power) - e.fraction * e.power;
  const Floats result = minus_expm1 / (2.0f - minus_expm1);
  return bits_as<Floats>(bits_as<Words>(result) | sign);
}

// Scores to x (level.hpp), `count` of them; bias may be NULL. Lengths are padded to full vectors.
inline void finish_scores(const Call& call, float* x, const float* bias, int64_t count) {
  if (call.cap > 0) {
    for (int64_t i = 0; i < count; i += width) {
      Floats value = call.cap * tanh_of(load(x + i) * call.cap_factor);
      if (bias != nullptr) value += load(bias + i);
      store(x + i, value);
    }
  } else if (bias != nullptr) {
    const Floats score_factor = splat(call.score_factor);
    for (int64_t i = 0; i < count; i += width)
      store(x + i, multiply_add(load(x + i), score_factor, load(bias + i) * call.bias_factor));
  }
}

// The weights of a row relative to `largest`, or to 0 where no key was seen yet: then -inf stays -inf.
inline Floats reference_of(Floats largest) { return largest == -float_infinity ? Floats{} : largest; }

// Raises the largest x of each column of a (keys x Vecs * width) block.
template <int Vecs>
void raise_largest(const float* x, int64_t keys, Floats (&largest)[Vecs]) {
  for (int64_t k = 0; k < keys; ++k) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) largest[v] = larger(load(x + (k * Vecs + v) * width), largest[v]);
  }
}

// How many vectors of T hold a vector of floats.
template <typename T>
constexpr int parts = static_cast<int>(sizeof(T) / sizeof(float));

// Adds a vector of weights' sums to those of its columns.
inline void add_weights(Floats weights, Floats* total) { total[0] += weights; }
inline void add_weights(Floats weights, Doubles* total) {
  total[0] += low_doubles(weights);
  total[1] += high_doubles(weights);
}

// Weights of a block relative to the column's reference; adds them to the column's total, four at a time. weights may
// be x. With totals in double, exponents are accurate beyond float.
template <typename Sum, int Vecs>
void weigh(const Call& call, const float* x, int64_t keys, const Floats (&reference)[Vecs], float* weights,
           Vector<Sum> (&total)[Vecs * parts<Sum>]) {
  const Floats high = splat(call.exp2_high);
  const Floats low = splat(call.exp2_low);
  const auto weigh_key = [&](int64_t k, int v) {
    const int64_t at = (k * Vecs + v) * width;
    const Exp2 e = exp2_parts < sizeof(Sum) == sizeof(double) > (load(x + at) - reference[v], high, low);
    const Floats weight = e.tiny ? Floats{} : multiply_add(e.fraction, e.power, e.power);
    store(weights + at, weight);
    return weight;
  };
  int64_t k = 0;
  for (; k + 4 <= keys; k += 4) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) {
      const Floats first = weigh_key(k, v) + weigh_key(k + 1, v), second = weigh_key(k + 2, v) + weigh_key(k + 3, v);
      add_weights(first + second, total + v * parts<Sum>);
    }
  }
  for (; k < keys; ++k) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) add_weights(weigh_key(k, v), total + v * parts<Sum>);
  }
}

// One step of the online softmax for the columns of a block: x becomes weights relative to the new largest x, and
// `rescale` what the sums so far must be multiplied by.
template <typename Sum, int Vecs>
void online_softmax(const Call& call, float* x, int64_t keys, float* largest, Sum* sums, Sum* rescale) {
  Floats top[Vecs], reference[Vecs];
  Vector<Sum> total[Vecs * parts<Sum>];
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs; ++v) top[v] = load(largest + v * width);
  raise_largest(x, keys, top);
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs; ++v) {
    reference[v] = reference_of(top[v]);
    const Weights<Sum> factor =
        exp2_of<Sum>(load(largest + v * width) - reference[v], splat(call.exp2_high), splat(call.exp2_low));
    store(largest + v * width, top[v]);
    ATTUNE_UNROLL
    for (int i = 0; i < parts<Sum>; ++i) {
      const int at = v * width + i * lanes<Sum>;
      total[v * parts<Sum> + i] = load(sums + at) * factor.part[i];
      store(rescale + at, factor.part[i]);
    }
  }
  weigh<Sum>(call, x, keys, reference, x, total);
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs * parts<Sum>; ++v) store(sums + v * lanes<Sum>, total[v]);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
