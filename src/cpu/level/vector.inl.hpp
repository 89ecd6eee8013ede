// Vectors of the level's width, by the vector extension of GCC and Clang; intrinsics only where it has no words.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define ATTUNE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ATTUNE_UNROLL _Pragma("GCC unroll 16")
#endif

// For functions of arrays of vectors, which are registers only where they are used; and for the innermost loops, whose
// registers would have to make room for what is around them.
#define ATTUNE_INLINE __attribute__((always_inline)) inline
#define ATTUNE_APART __attribute__((noinline))

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

#if defined(__AVX512F__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

constexpr int width = vector_bytes / 4;         // floats in a vector
constexpr int double_width = vector_bytes / 8;  // doubles in a vector

using Floats = float __attribute__((vector_size(vector_bytes)));
using Doubles = double __attribute__((vector_size(vector_bytes)));
using Words = uint32_t __attribute__((vector_size(vector_bytes)));
using Ints = int32_t __attribute__((vector_size(vector_bytes)));
using Halves = uint16_t __attribute__((vector_size(vector_bytes / 2)));  // as many as floats

template <typename T>
struct VectorOf;
template <>
struct VectorOf<float> {
  using type = Floats;
};
template <>
struct VectorOf<double> {
  using type = Doubles;
};
template <typename T>
using Vector = typename VectorOf<T>::type;
template <typename T>
constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <typename V>
V load_bytes(const void* from) {
  V value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}
template <typename V>
void store_bytes(void* to, V value) {
  __builtin_memcpy(to, &value, sizeof value);
}
template <typename T>
Vector<T> load(const T* from) {
  return load_bytes<Vector<T>>(from);
}
template <typename T>
void store(T* to, Vector<T> value) {
  store_bytes(to, value);
}

// Minus, because adding +0 would change -0 and so cost an instruction.
inline Floats splat(float x) { return x - Floats{}; }
inline Doubles splat(double x) { return x - Doubles{}; }

template <typename To, typename From>
To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  __builtin_memcpy(&result, &value, sizeof result);
  return result;
}

// The larger one; b where a is NaN.
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// The largest lane, by halves. Lanes must not be NaN.
inline float largest_of(Floats v) {
#if defined(__AVX512F__)
  v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
#elif defined(__AVX2__)
  v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
  v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
#else
  v = larger(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
  v = larger(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
#endif
  return v[0];
}

template <typename T>
T sum_of(Vector<T> v) {
  T sum = 0;
  for (int i = 0; i < lanes<T>; ++i) sum += v[i];
  return sum;
}

// The sums of `width` vectors as one vector. Two vectors at a time are interleaved and added, first within each 128
// bits, then across.
#if defined(__AVX512F__)
inline Floats add_words(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
         __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
inline Floats add_pairs(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
         __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}
inline Floats add_quads(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}
#elif defined(__AVX2__)
inline Floats add_words(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) +
         __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
inline Floats add_pairs(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
         __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
inline Floats add_quads(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
#else
inline Floats add_words(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
inline Floats add_pairs(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
#endif
inline Floats sums_of(Floats (&v)[width]) {
  ATTUNE_UNROLL
  for (int i = 0; i < width / 2; ++i) v[i] = add_words(v[2 * i], v[2 * i + 1]);
  ATTUNE_UNROLL
  for (int i = 0; i < width / 4; ++i) v[i] = add_pairs(v[2 * i], v[2 * i + 1]);
#if defined(__AVX2__)
  ATTUNE_UNROLL
  for (int i = 0; i < width / 8; ++i) v[i] = add_quads(v[2 * i], v[2 * i + 1]);
#endif
#if defined(__AVX512F__)
  v[0] = add_quads(v[0], v[1]);
#endif
  return v[0];
}

#if defined(__AVX512F__)
// The forms with a mask, of ones, because GCC 12 warns about the undefined variable in its own forms without one.
inline __m256 low_half(Floats v) { return _mm512_maskz_extractf32x8_ps(0xff, v, 0); }
inline __m256 high_half(Floats v) { return _mm512_maskz_extractf32x8_ps(0xff, v, 1); }
#endif

// a * b + c, rounded once where the level has such an instruction.
#if defined(__AVX512F__)
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__AVX2__)
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
#else
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) { return a * b + c; }
#endif

// sum += *element * factor, rounded once likewise.
#if defined(__AVX512F__)
// In assembler, because the compiler would rather load an element once for all its products.
ATTUNE_INLINE void add_product_of_splat(const float* element, Floats factor, Floats& sum) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(factor), "m"(*element));
}
#else
ATTUNE_INLINE void add_product_of_splat(const float* element, Floats factor, Floats& sum) {
  sum = multiply_add(splat(*element), factor, sum);
}
#endif

// The lower or upper half of the lanes as doubles.
#if defined(__AVX512F__)
inline Doubles low_doubles(Floats v) { return _mm512_maskz_cvtps_pd(0xff, low_half(v)); }
inline Doubles high_doubles(Floats v) { return _mm512_maskz_cvtps_pd(0xff, high_half(v)); }
#elif defined(__AVX2__)
inline Doubles low_doubles(Floats v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
inline Doubles high_doubles(Floats v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
#else
inline Doubles low_doubles(Floats v) { return Doubles{v[0], v[1]}; }
inline Doubles high_doubles(Floats v) { return Doubles{v[2], v[3]}; }
#endif

inline Floats floats_from_doubles(Doubles low, Doubles high) {
#if defined(__AVX512F__)
  const __m512 lower = _mm512_castps256_ps512(_mm512_maskz_cvtpd_ps(0xff, low));
  return _mm512_maskz_insertf32x8(0xffff, lower, _mm512_maskz_cvtpd_ps(0xff, high), 1);
#elif defined(__AVX2__)
  return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
#else
  return Floats{static_cast<float>(low[0]), static_cast<float>(low[1]), static_cast<float>(high[0]),
                static_cast<float>(high[1])};
#endif
}

// a0 b0 a1 b1 ..., of the lower or upper halves of a and b.
#if defined(__AVX512F__)
inline Floats interleave_low(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Floats interleave_high(Floats a, Floats b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Doubles interleave_high(Doubles a, Doubles b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline __m256 interleave_low(__m256 a, __m256 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline __m256 interleave_high(__m256 a, __m256 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#elif defined(__AVX2__)
inline Floats interleave_low(Floats a, Floats b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Floats interleave_high(Floats a, Floats b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Doubles interleave_high(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
#else
inline Floats interleave_low(Floats a, Floats b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Floats interleave_high(Floats a, Floats b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
inline Doubles interleave_low(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 0, 2); }
inline Doubles interleave_high(Doubles a, Doubles b) { return __builtin_shufflevector(a, b, 1, 3); }
#endif

// Transposes a square of vectors. Each round of a perfect shuffle moves the highest bit of the row's number to the end
// of the column's, and the column's highest to the end of the row's.
template <typename V, int n>
ATTUNE_INLINE void transpose(V (&square)[n]) {
  constexpr int half = n / 2;
  ATTUNE_UNROLL
  for (int round = 1; round < n; round *= 2) {
    V shuffled[n];
    ATTUNE_UNROLL
    for (int i = 0; i < half; ++i) {
      shuffled[2 * i] = interleave_low(square[i], square[i + half]);
      shuffled[2 * i + 1] = interleave_high(square[i], square[i + half]);
    }
    ATTUNE_UNROLL
    for (int i = 0; i < n; ++i) square[i] = shuffled[i];
  }
}

// to[j][i] = from[i][j]
template <typename T>
void transpose_square(const T* from, int64_t from_pitch, T* to, int64_t to_pitch) {
  Vector<T> square[lanes<T>];
  ATTUNE_UNROLL
  for (int i = 0; i < lanes<T>; ++i) square[i] = load(from + i * from_pitch);
  transpose(square);
  ATTUNE_UNROLL
  for (int i = 0; i < lanes<T>; ++i) store(to + i * to_pitch, square[i]);
}

// bf16 and fp16 to float and back, round to nearest even: the same values as core/convert.hpp.
inline Floats floats_from_bf16(Halves h) { return bits_as<Floats>(__builtin_convertvector(h, Words) << 16); }

// The upper halves are bf16.
inline Words rounded_to_bf16(Floats v) {
  const Words bits = bits_as<Words>(v);
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
}
inline Halves bf16_from_floats(Floats v) { return __builtin_convertvector(rounded_to_bf16(v) >> 16, Halves); }

#if defined(__AVX512F__)
inline Floats floats_from_f16(Halves h) { return _mm512_maskz_cvtph_ps(0xffff, bits_as<__m256i>(h)); }
inline Halves f16_from_floats(Floats v) {
  return bits_as<Halves>(_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
inline Floats floats_from_f16(Halves h) { return _mm256_cvtph_ps(bits_as<__m128i>(h)); }
inline Halves f16_from_floats(Floats v) {
  return bits_as<Halves>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
inline Floats floats_from_f16(Halves h) {
  const Words bits = __builtin_convertvector(h, Words);
  const Words sign = (bits & 0x8000u) << 16;
  const Words rest = bits & 0x7fffu;
  const Words infinite = 0x7f800000u | ((rest & 0x3ffu) << 13);
  // The product with 2^112 moves the exponent's bias and makes subnormals exact in one step.
  const Words finite = bits_as<Words>(bits_as<Floats>(rest << 13) * 0x1p112f);
  return bits_as<Floats>(sign | (rest >= 0x7c00u ? infinite : finite));
}
inline Halves f16_from_floats(Floats v) {
  const Words bits = bits_as<Words>(v);
  const Words sign = (bits >> 16) & 0x8000u;
  const Words magnitude = bits & 0x7fffffffu;
  const Words normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // A subnormal result: adding 0.5 leaves the rounded bits at the end of the sum.
  const Words subnormal = bits_as<Words>(bits_as<Floats>(magnitude) + 0.5f) - 0x3f000000u;
  Words result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? Words{} + 0x7c00u : result;
  result = magnitude > 0x7f800000u ? Words{} + 0x7e00u : result;
  return __builtin_convertvector(sign | result, Halves);
}
#endif

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
