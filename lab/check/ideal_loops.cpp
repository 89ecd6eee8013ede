#include "lab/check/ideal_loops.hpp"

namespace attune::lab {
namespace {

// Each loop is written once, as a body that is inlined into one function per instruction set.
struct ScoreRow {
  [[gnu::always_inline]] static inline void body(const float* __restrict q, const float* __restrict keys,
                                                 int64_t stride, int64_t dim, int64_t count, float* __restrict s,
                                                 float* __restrict partial_squares) {
    for (int64_t j = 0; j < count; ++j) s[j] = partial_squares[j] = 0;
    for (int64_t c = 0; c < dim; ++c) {
      const float factor = q[c];
      const float* __restrict column = keys + c * stride;
      for (int64_t j = 0; j < count; ++j) {
        s[j] = __builtin_fmaf(factor, column[j], s[j]);
        partial_squares[j] += s[j] * s[j];
      }
    }
  }
};

struct AddKey {
  [[gnu::always_inline]] static inline void body(double p, double variance, double logit_variance,
                                                 const float* __restrict v, int64_t dim, double* __restrict o,
                                                 double* __restrict square_terms, double* __restrict cross_terms) {
    for (int64_t c = 0; c < dim; ++c) {
      const double value = v[c];
      o[c] = __builtin_fma(p, value, o[c]);
      square_terms[c] += variance * value * value;
      cross_terms[c] += logit_variance * value;
    }
  }
};

struct AddKeyFloat {
  [[gnu::always_inline]] static inline void body(float p, double variance, double logit_variance, double sum_variance,
                                                 const float* __restrict v, int64_t dim, float* __restrict o,
                                                 double* __restrict square_terms, double* __restrict cross_terms) {
    for (int64_t c = 0; c < dim; ++c) {
      o[c] = __builtin_fmaf(p, v[c], o[c]);
      const double value = v[c], sum = o[c];
      square_terms[c] += variance * value * value + sum_variance * sum * sum;
      cross_terms[c] += logit_variance * value;
    }
  }
};

template <typename Loop, typename... Args>
void any(Args... args) {
  Loop::body(args...);
}
#if defined(__x86_64__)
template <typename Loop, typename... Args>
[[gnu::target("avx512f,avx512vl,fma")]] void avx512(Args... args) {
  Loop::body(args...);
}
template <typename Loop, typename... Args>
[[gnu::target("avx2,fma")]] void avx2(Args... args) {
  Loop::body(args...);
}
#endif

template <typename Loop, typename... Args>
auto pick() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) return avx512<Loop, Args...>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2<Loop, Args...>;
#endif
  return any<Loop, Args...>;
}

template <typename Loop, typename... Args>
void run(Args... args) {
  static const auto loop = pick<Loop, Args...>();
  loop(args...);
}

}  // namespace

void score_row(const float* q, const float* keys, int64_t stride, int64_t dim, int64_t count, float* s,
               float* partial_squares) {
  run<ScoreRow>(q, keys, stride, dim, count, s, partial_squares);
}

void add_key(const KeyTerms& key, const float* v, int64_t dim, double* o, double* square_terms, double* cross_terms) {
  run<AddKey>(static_cast<double>(key.p), key.rounding_variance + key.logit_variance, key.logit_variance, v, dim, o,
              square_terms, cross_terms);
}

void add_key(const KeyTerms& key, double sum_variance, const float* v, int64_t dim, float* o, double* square_terms,
             double* cross_terms) {
  run<AddKeyFloat>(key.p, key.rounding_variance + key.logit_variance, key.logit_variance, sum_variance, v, dim, o,
                   square_terms, cross_terms);
}

}  // namespace attune::lab
