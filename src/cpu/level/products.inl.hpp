// The two matrix products, as register tiles with the query rows along the vector lanes: S^T = K Q^T and O^T = V^T P^T.
// The softmax needs no sum across lanes that way.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// K and V are packed in strips, of this many keys and of this many columns. Up to 3 vectors of rows times a strip fill
// the registers: 24 of 32 or 12 of 16 accumulators.
constexpr int max_vecs = 3;
constexpr int strip_width = vector_bytes == 64 ? 8 : 4;
constexpr int tile_rows = max_vecs * width;
constexpr int64_t v_strip_pitch = packed_keys * strip_width;  // from a strip of V to the next one

// For each vector of rows, how many keys its rows see at most, or those of a vector before it: so it never decreases.
template <int Vecs>
using Ends = const int64_t (&)[Vecs];

// Calls f with the first vector that sees `key`, as a compile-time constant. The last one is taken to see every key.
template <int Vecs, typename F>
ATTUNE_INLINE void with_first_vector(Ends<Vecs> ends, int64_t key, const F& f) {
  static_assert(Vecs <= 3);
  if constexpr (Vecs > 2)
    if (ends[1] <= key) return f.template operator()<2>();
  if constexpr (Vecs > 1)
    if (ends[0] <= key) return f.template operator()<1>();
  f.template operator()<0>();
}

// sum[c][row] += strip[c] * rows[row], for the vectors from `first` on.
// skip_zeros: 0 in `rows` makes the product 0 even where `strip` is infinite or NaN.
template <int Vecs, int first, bool skip_zeros>
ATTUNE_INLINE void add_product(const float* strip, const float* rows, Floats (&sum)[strip_width][Vecs]) {
  Floats row[Vecs];
  ATTUNE_UNROLL
  for (int v = first; v < Vecs; ++v) row[v] = load(rows + v * width);
  ATTUNE_UNROLL
  for (int c = 0; c < strip_width; ++c) {
    // Every other element is repeated by the multiplications themselves: fewer instructions, of which a core whose
    // other thread is busy has too few, and not yet more than two loads a cycle.
    if (!skip_zeros && c % 2 == 1) {
      ATTUNE_UNROLL
      for (int v = first; v < Vecs; ++v) add_product_of_splat(strip + c, row[v], sum[c][v]);
    } else {
      const Floats element = splat(strip[c]);
      ATTUNE_UNROLL
      for (int v = first; v < Vecs; ++v) {
        const Floats seen = skip_zeros ? (row[v] == 0.0f ? Floats{} : element) : element;
        sum[c][v] = multiply_add(seen, row[v], sum[c][v]);
      }
    }
  }
}

// The same for `count` elements of each, one after the other. This is the innermost loop of both products.
template <int Vecs, int first, bool skip_zeros = false>
ATTUNE_INLINE void add_products(const float* strip, const float* rows, int64_t count,
                                Floats (&sum)[strip_width][Vecs]) {
  constexpr int row = Vecs * width;
  constexpr int together = vector_bytes > 16 ? 4 : 1;  // without multiply-adds there are no registers for more
  for (; count >= together; count -= together, strip += together * strip_width, rows += together * row) {
    ATTUNE_UNROLL
    for (int i = 0; i < together; ++i)
      add_product<Vecs, first, skip_zeros>(strip + i * strip_width, rows + i * row, sum);
  }
  for (; count > 0; --count, strip += strip_width, rows += row) add_product<Vecs, first, skip_zeros>(strip, rows, sum);
}

// scores[i][row] = sum over d, in order, of k[d][i] * q[d][row], for a strip of keys and the vectors from `first` on.
template <int Vecs, int first>
ATTUNE_APART void score_strip(const float* k, const float* q, int64_t dim, float* scores) {
  constexpr int rows = Vecs * width;
  Floats sum[strip_width][Vecs] = {};
  add_products<Vecs, first>(k, q, dim, sum);
  ATTUNE_UNROLL
  for (int i = 0; i < strip_width; ++i) {
    ATTUNE_UNROLL
    for (int v = first; v < Vecs; ++v) store(scores + i * rows + v * width, sum[i][v]);
  }
}

// out[at] = sum, a vector of rows.
inline void begin_with(float* out, Floats sum) { store(out, sum); }
inline void begin_with(double* out, Floats sum) {
  store(out, low_doubles(sum));
  store(out + double_width, high_doubles(sum));
}

// out[at] = out[at] * rescale[row] + sum
inline void add_to(float* out, const float* rescale, Floats sum) {
  store(out, multiply_add(load(out), load(rescale), sum));
}
inline void add_to(double* out, const double* rescale, Floats sum) {
  store(out, multiply_add(load(out), load(rescale), low_doubles(sum)));
  store(out + double_width, multiply_add(load(out + double_width), load(rescale + double_width), high_doubles(sum)));
}

// Keys whose weighted values are summed in float, at most, where the sums of all keys are double.
constexpr int64_t float_sum_keys = 64;

// A strip of values from some key on: steps of packed_keys keys lie step_pitch apart.
struct Strip {
  const float* at;
  int64_t key;  // counted from a multiple of float_sum_keys
  int64_t step_pitch;
};

// out[c][row] = out[c][row] * rescale[row] + sum over keys of v[key][c] * weights[key][row], for one strip of columns
// and at most a chunk of keys. Where out is double, a chunk's halves are summed apart, and joined before they are
// converted, because that takes seven instructions for one of adding.
// begun: there are sums in out. skip_zeros: a weight of 0 hides the key even where v is infinite or NaN.
template <typename Sum, int Vecs, bool begun, bool skip_zeros>
ATTUNE_APART void value_strip(Strip v, Ends<Vecs> ends, const float* weights, const Sum* rescale, Sum* out) {
  constexpr int rows = Vecs * width;
  Floats sum[strip_width][Vecs] = {};
  alignas(vector_bytes) float first[strip_width * rows];
  bool halved = false;
  const int64_t keys = ends[Vecs - 1];
  for (int64_t key = 0; key < keys;) {
    const int64_t left = packed_keys - v.key % packed_keys;  // of the step
    int64_t count = left;
    with_first_vector<Vecs>(ends, key, [&]<int first_vector>() __attribute__((always_inline)) {
      if (ends[first_vector] - key < count) count = ends[first_vector] - key;
      add_products<Vecs, first_vector, skip_zeros>(v.at, weights, count, sum);
    });
    weights += count * rows;
    v.at += count < left ? count * strip_width : v.step_pitch - (packed_keys - left) * strip_width;
    v.key += count;
    key += count;
    if (sizeof(Sum) == sizeof(double) && key < keys && v.key % float_sum_keys == 0) {
      ATTUNE_UNROLL
      for (int c = 0; c < strip_width; ++c) {
        ATTUNE_UNROLL
        for (int i = 0; i < Vecs; ++i) {
          store(first + c * rows + i * width, sum[c][i]);
          sum[c][i] = Floats{};
        }
      }
      // Kept from the compiler, which would have registers for both halves, and not enough for either.
      asm volatile("" : : "r"(first) : "memory");
      halved = true;
    }
  }
  if (sizeof(Sum) == sizeof(double) && halved) {
    ATTUNE_UNROLL
    for (int c = 0; c < strip_width; ++c) {
      ATTUNE_UNROLL
      for (int i = 0; i < Vecs; ++i) sum[c][i] += load(first + c * rows + i * width);
    }
  }
  ATTUNE_UNROLL
  for (int c = 0; c < strip_width; ++c) {
    ATTUNE_UNROLL
    for (int i = 0; i < Vecs; ++i) {
      Sum* const at = out + c * rows + i * width;
      if constexpr (begun)
        add_to(at, rescale + i * width, sum[c][i]);
      else
        begin_with(at, sum[c][i]);
    }
  }
}

// All strips, from the first one on.
template <typename Sum, int Vecs>
void value_block(Strip v, int64_t strips, Ends<Vecs> ends, const float* weights, const Sum* rescale, bool begun,
                 bool skip_zeros, Sum* out) {
  const auto strip = begun ? skip_zeros ? value_strip<Sum, Vecs, true, true> : value_strip<Sum, Vecs, true, false>
                     : skip_zeros ? value_strip<Sum, Vecs, false, true>
                                  : value_strip<Sum, Vecs, false, false>;
  for (int64_t i = 0; i < strips; ++i, v.at += v_strip_pitch, out += strip_width * Vecs * width)
    strip(v, ends, weights, rescale, out);
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
