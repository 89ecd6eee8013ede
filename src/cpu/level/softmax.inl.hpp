// exp2, tanh, and what happens to scores between the two products: softcap, bias, masks, and the weights.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/products.inl.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr float float_infinity = __builtin_inff();

// 2^t, t = x * (high + low), as power * (1 + fraction), of n vectors. Where `tiny` is set, 2^t counts as 0, and the two
// others mean nothing: so it is for all 2^t < 2^(least - 1), and for no 2^t > 2^least. NaN stays NaN.
template <int n>
struct Exp2 {
  Floats fraction[n], power[n];
  Ints tiny[n];
};

// Relative error of 1 + fraction: 2e-9 by the polynomial (minimax over [-0.5, 0.5] with the constant term held at 1),
// and the rounding of fraction, which vanishes with t. Without `use_low`, t is off by its rounding as well.
// Each operation waits for the one before it: several vectors wait together, if they take turns.
template <bool use_low, int least = -125, int n>
ATTUNE_INLINE Exp2<n> exp2_parts(const Floats (&x)[n], Floats high, Floats low) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits; 127 more make it an exponent field.
  constexpr float rounder = 0x1.8p23f + 127;
  constexpr float coefficients[] = {1.3398814335e-03f, 9.6184367625e-03f, 5.5503326146e-02f, 2.4022647921e-01f,
                                    6.9314720279e-01f};
  Floats rest[n], q[n];
  Exp2<n> result;
  ATTUNE_UNROLL
  for (int i = 0; i < n; ++i) {
    const Floats shifted = multiply_add(x[i], high, splat(rounder));
    result.tiny[i] = shifted < rounder + least;
    result.power[i] = bits_as<Floats>(bits_as<Words>(shifted) << 23);
    rest[i] = multiply_add(x[i], high, rounder - shifted);
    if constexpr (use_low) rest[i] = multiply_add(x[i], low, rest[i]);
    q[i] = splat(1.5353417977e-04f);
  }
  ATTUNE_UNROLL
  for (const float coefficient : coefficients) {
    ATTUNE_UNROLL
    for (int i = 0; i < n; ++i) q[i] = multiply_add(q[i], rest[i], splat(coefficient));
  }
  ATTUNE_UNROLL
  for (int i = 0; i < n; ++i) result.fraction[i] = q[i] * rest[i];
  return result;
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
  const auto e = exp2_parts < sizeof(T) == sizeof(double) > ({x}, high, low);
  if constexpr (sizeof(T) == sizeof(float)) {
    return {{e.tiny[0] ? Floats{} : multiply_add(e.fraction[0], e.power[0], e.power[0])}};
  } else {
    const Floats fraction = e.tiny[0] ? Floats{} : e.fraction[0];
    const Floats power = e.tiny[0] ? Floats{} : e.power[0];
    return {{(1.0 + low_doubles(fraction)) * low_doubles(power), (1.0 + high_doubles(fraction)) * high_doubles(power)}};
  }
}

// tanh through expm1(-2|x|), which is accurate to a few units in the last place also near 0.
inline Floats tanh_of(Floats x) {
  const Words sign = bits_as<Words>(x) & 0x80000000u;
  const Floats magnitude = bits_as<Floats>(bits_as<Words>(x) ^ sign);
  const Floats limited = magnitude > 40.0f ? splat(40.0f) : magnitude;
  const auto e = exp2_parts<true>({limited}, splat(-2.88539004e+00f), splat(-3.8519089e-08f));
  const Floats minus_expm1 = (1.0f - e.power[0]) - e.fraction[0] * e.power[0];
  const Floats result = minus_expm1 / (2.0f - minus_expm1);
  return bits_as<Floats>(bits_as<Words>(result) | sign);
}

// Scores to x (level.hpp), `count` of them; bias may be NULL. Lengths are padded to full vectors.
inline void finish_scores(const Call& call, float* x, const float* bias, int64_t count) {
  const Floats score_factor = splat(call.score_factor);
  if (call.cap > 0) {
    for (int64_t i = 0; i < count; i += width) {
      Floats value = call.cap * tanh_of(load(x + i) * score_factor * call.cap_factor);
      if (bias != nullptr) value += load(bias + i);
      store(x + i, value);
    }
  } else if (bias != nullptr) {
    for (int64_t i = 0; i < count; i += width)
      store(x + i, multiply_add(load(x + i), score_factor, load(bias + i) * call.bias_factor));
  } else if (call.score_factor != 1) {
    for (int64_t i = 0; i < count; i += width) store(x + i, load(x + i) * score_factor);
  }
}

// The weights of a row relative to `largest`, or to 0 where no key was seen yet: then -inf stays -inf.
inline Floats reference_of(Floats largest) { return largest == -float_infinity ? Floats{} : largest; }

// Raises the largest x of each column of a (keys x Vecs * width) block. Four keys at a time, because a maximum waits
// for the one before it.
template <int Vecs>
ATTUNE_INLINE void raise_largest(const float* x, int64_t keys, Floats (&largest)[Vecs]) {
  constexpr int64_t row = Vecs * width;
  for (; keys >= 4; keys -= 4, x += 4 * row) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) {
      const float* const at = x + v * width;
      const Floats first = larger(load(at), load(at + row)), second = larger(load(at + 2 * row), load(at + 3 * row));
      largest[v] = larger(larger(first, second), largest[v]);
    }
  }
  for (; keys > 0; --keys, x += row) {
    ATTUNE_UNROLL
    for (int v = 0; v < Vecs; ++v) largest[v] = larger(load(x + v * width), largest[v]);
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

// Weights of `count` vectors of x, `pitch` apart, relative to the reference; returns their sum.
template <bool use_low, int count>
ATTUNE_INLINE Floats weigh_some(const float* x, int64_t pitch, Floats reference, Floats high, Floats low,
                                float* weights) {
  Floats difference[count];
  ATTUNE_UNROLL
  for (int i = 0; i < count; ++i) difference[i] = load(x + i * pitch) - reference;
  const auto e = exp2_parts<use_low>(difference, high, low);
  Floats sum[count];
  ATTUNE_UNROLL
  for (int i = 0; i < count; ++i) {
    sum[i] = e.tiny[i] ? Floats{} : multiply_add(e.fraction[i], e.power[i], e.power[i]);
    store(weights + i * pitch, sum[i]);
  }
  ATTUNE_UNROLL
  for (int step = 1; step < count; step *= 2) {
    ATTUNE_UNROLL
    for (int i = 0; i < count; i += 2 * step) sum[i] += sum[i + step];
  }
  return sum[0];
}

// Weights of a block relative to the column's reference, of each vector's columns up to its end; adds them to the
// column's total, a few at a time. weights may be x. With totals in double, exponents are accurate beyond float.
template <typename Sum, int Vecs>
ATTUNE_INLINE void weigh(const Call& call, const float* x, Ends<Vecs> ends, const Floats (&reference)[Vecs],
                         float* weights, Vector<Sum> (&total)[Vecs * parts<Sum>]) {
  constexpr bool use_low = sizeof(Sum) == sizeof(double);
  constexpr int64_t row = Vecs * width;
  constexpr int together = 4;  // as many as there are registers for
  const Floats high = splat(call.exp2_high);
  const Floats low = splat(call.exp2_low);
  for (int v = 0; v < Vecs; ++v, x += width, weights += width) {
    const auto weigh_at = [&]<int count>(int64_t k) {
      return weigh_some<use_low, count>(x + k * row, row, reference[v], high, low, weights + k * row);
    };
    const int64_t keys = ends[v];
    int64_t k = 0;
    for (; k + strip_width <= keys; k += strip_width) {
      Floats sum = weigh_at.template operator()<together>(k);
      ATTUNE_UNROLL
      for (int i = together; i < strip_width; i += together) sum += weigh_at.template operator()<together>(k + i);
      add_weights(sum, total + v * parts<Sum>);
    }
    // The same as a strip whose last weights are 0, as they are for a row that others of its tile go on without.
    Floats sum{};
    for (; k + together <= keys; k += together) sum += weigh_at.template operator()<together>(k);
    Floats rest{};
    for (; k < keys; ++k) rest += weigh_at.template operator()<1>(k);
    add_weights(sum + rest, total + v * parts<Sum>);
  }
}

// One step of the online softmax for the columns of a block: x becomes weights relative to the new largest x, and
// `rescale` what the sums so far must be multiplied by.
template <typename Sum, int Vecs>
void online_softmax(const Call& call, float* x, Ends<Vecs> ends, float* largest, Sum* sums, Sum* rescale) {
  Floats top[Vecs], reference[Vecs];
  Vector<Sum> total[Vecs * parts<Sum>];
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs; ++v) top[v] = load(largest + v * width);
  raise_largest(x, ends[Vecs - 1], top);
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
  weigh<Sum>(call, x, ends, reference, x, total);
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs * parts<Sum>; ++v) store(sums + v * lanes<Sum>, total[v]);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
