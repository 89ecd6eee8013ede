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
  [[gnu::always_inline]] static inline void body(double p, double p_variance, const float* __restrict v, int64_t dim,
                                                 double* __restrict o, double* __restrict variance) {
    for (int64_t c = 0; c < dim; ++c) {
      const double value = v[c];
      o[c] = __builtin_fma(p, value, o[c]);
      variance[c] += p_variance * value * value;
    }
  }
};

struct AddKeyFloat {
  [[gnu::always_inline]] static inline void body(float p, double p_variance, double sum_variance,
                                                 const float* __restrict v, int64_t dim, float* __restrict o,
                                                 double* __restrict variance) {
    for (int64_t c = 0; c < dim; ++c) {
      o[c] = __builtin_fmaf(p, v[c], o[c]);
      const double value = v[c], sum = o[c];
      variance[c] += p_variance * value * value + sum_variance * sum * sum;
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

void add_key(double p, double p_variance, const float* v, int64_t dim, double* o, double* variance) {
  run<AddKey>(p, p_variance, v, dim, o, variance);
}

void add_key(float p, double p_variance, double sum_variance, const float* v, int64_t dim, float* o, double* variance) {
  run<AddKeyFloat>(p, p_variance, sum_variance, v, dim, o, variance);
}

}  // namespace attune::lab
