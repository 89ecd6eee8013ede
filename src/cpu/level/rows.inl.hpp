// The row path, for a few rows against many keys (decoding): lanes run along the head dimension, K and V are read in
// place and once, so memory bandwidth is the limit.
#pragma once

#include "cpu/level/block.inl.hpp"
#include "cpu/level/level.hpp"
#include "cpu/level/memory.inl.hpp"
#include "cpu/level/softmax.inl.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int few_rows = width / 2;
// Accumulators of the second product.
constexpr int row_accumulators = vector_bytes == 64 ? 16 : 8;

template <typename T>
struct RowScratch {
  float* q = nullptr;  // few_rows x padded dim_qk
  T* out = nullptr;    // few_rows x padded dim_v
  float* x = nullptr;  // few_rows x key_alignment
  float* bias = nullptr;
  T* weights = nullptr;           // few_rows x key_alignment
  int64_t dim_qk = 0, dim_v = 0;  // padded

  RowScratch(const Problem& p, Arena& arena) {
    dim_qk = round_up(p.dim_qk, width);
    dim_v = round_up(p.dim_v, width);
    q = arena.take<float>(few_rows * dim_qk);
    out = arena.take<T>(few_rows * dim_v);
    x = arena.take<float>(few_rows * key_alignment);
    bias = arena.take<float>(key_alignment);
    weights = arena.take<T>(few_rows * key_alignment);
  }
};

// Rows of a strided cache are too far apart for the hardware to foresee: a chunk is fetched while the one before it is
// computed.
constexpr int64_t prefetched_keys = key_alignment;

inline void prefetch(const char* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// x[r][i] = q[r] . k[i] for R rows, as many keys at a time as fill a vector with their scores; x is written up to a
// multiple of that. `ahead` keys may be prefetched.
template <Dtype dtype, int R>
void row_scores(const Call& call, const Block& block, int64_t from, int64_t keys, int64_t ahead, const float* q,
                int64_t q_pitch, float* x) {
  constexpr int keys_at_once = width / R;
  const Problem& p = *call.problem;
  const int64_t whole = p.dim_qk / width * width;
  const int64_t step = p.k.row * size_of<dtype>;
  for (int64_t i = 0; i < keys; i += keys_at_once) {
    const char* k[keys_at_once];
    for (int j = 0; j < keys_at_once; ++j) {
      k[j] = element(call.args->k, dtype, key_offset(p, p.k, block, from + smaller_of(i + j, keys - 1)));
      if (i + j + prefetched_keys < ahead) prefetch(k[j] + prefetched_keys * step, p.dim_qk * size_of<dtype>);
    }
    Floats sum[width] = {};
    const auto add = [&](int64_t d, const auto& key_at) {
      Floats q_row[R];
      ATTUNE_UNROLL
      for (int r = 0; r < R; ++r) q_row[r] = load(q + r * q_pitch + d);
      ATTUNE_UNROLL
      for (int j = 0; j < keys_at_once; ++j) {
        const Floats key = key_at(k[j] + d * size_of<dtype>);
        ATTUNE_UNROLL
        for (int r = 0; r < R; ++r) sum[r * keys_at_once + j] = multiply_add(key, q_row[r], sum[r * keys_at_once + j]);
      }
    };
    for (int64_t d = 0; d < whole; d += width) add(d, [](const char* at) { return load_as_floats<dtype>(at); });
    if (whole < p.dim_qk) add(whole, [&](const char* at) { return load_as_floats<dtype>(at, p.dim_qk - whole); });
    alignas(vector_bytes) float scores[width];
    store(scores, sums_of(sum));
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r)
      __builtin_memcpy(x + r * key_alignment + i, scores + r * keys_at_once, keys_at_once * sizeof(float));
  }
}

// out[r] = out[r] * rescale[r] + sum over keys of weights[r][i] * v[i], for R rows and Columns vectors of columns.
template <Dtype dtype, typename T, int R, int Columns, bool skip_zeros>
void row_values(const Call& call, const Block& block, int64_t from, int64_t keys, int64_t ahead, int64_t column,
                const T* weights, const T* rescale, T* out, int64_t out_pitch) {
  const Problem& p = *call.problem;
  const int64_t tail = p.dim_v - column - (Columns - 1) * width;  // elements of the last vector, if fewer than width
  const int64_t step = p.v.row * size_of<dtype>;
  Vector<T> sum[R][Columns * parts<T>] = {};
  for (int64_t i = 0; i < keys; ++i) {
    const char* v = element(call.args->v, dtype, key_offset(p, p.v, block, from + i) + column);
    if (i + prefetched_keys < ahead) prefetch(v + prefetched_keys * step, Columns * width * size_of<dtype>);
    Vector<T> value[Columns * parts<T>];
    ATTUNE_UNROLL
    for (int c = 0; c < Columns; ++c) {
      const char* at = v + c * width * size_of<dtype>;
      const Floats loaded =
          c + 1 < Columns || tail >= width ? load_as_floats<dtype>(at) : load_as_floats<dtype>(at, tail);
      if constexpr (parts<T> == 1) {
        value[c] = loaded;
      } else {
        value[c * 2] = low_doubles(loaded);
        value[c * 2 + 1] = high_doubles(loaded);
      }
    }
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vector<T> weight = splat(weights[r * key_alignment + i]);
      ATTUNE_UNROLL
      for (int c = 0; c < Columns * parts<T>; ++c) {
        Vector<T> seen = value[c];
        if constexpr (skip_zeros) seen = weight == T{0} ? Vector<T>{} : seen;
        sum[r][c] = multiply_add(weight, seen, sum[r][c]);
      }
    }
  }
  ATTUNE_UNROLL
  for (int r = 0; r < R; ++r) {
    const Vector<T> factor = splat(rescale[r]);
    ATTUNE_UNROLL
    for (int c = 0; c < Columns * parts<T>; ++c) {
      T* at = out + r * out_pitch + column + c * lanes<T>;
      store(at, multiply_add(load(at), factor, sum[r][c]));
    }
  }
}

template <Dtype dtype, typename T, int R, bool skip_zeros>
void row_values_all(const Call& call, const Block& block, int64_t from, int64_t keys, int64_t ahead, const T* weights,
                    const T* rescale, T* out, int64_t out_pitch) {
  constexpr int columns = row_accumulators / R / parts<T>;
  int64_t column = 0;
  for (; column + columns * width <= out_pitch; column += columns * width)
    row_values<dtype, T, R, columns, skip_zeros>(call, block, from, keys, ahead, column, weights, rescale, out,
                                                 out_pitch);
  for (; column < out_pitch; column += width)
    row_values<dtype, T, R, 1, skip_zeros>(call, block, from, keys, ahead, column, weights, rescale, out, out_pitch);
}

// Softcap, bias, mask and range of one row. True if it may not see some of these keys.
inline bool shape_row(const Call& call, const Block& block, int64_t row, int64_t from, int64_t keys, float* x,
                      float* bias) {
  const Problem& p = *call.problem;
  const bool has_bias = (p.features & ATTUNE_BIAS) != 0;
  const bool has_mask = (p.features & ATTUNE_MASK) != 0;
  const int64_t padded = round_up(keys, width);
  if (has_bias) load_bias(call, block, row, from, keys, bias, 1);
  for (int64_t i = keys; i < padded; ++i) x[i] = bias[i] = 0;
  finish_scores(call, x, has_bias ? bias : nullptr, padded);
  if (has_mask) apply_mask(call, block, row, from, keys, x, 1);
  const KeyRange range = block.visible[row];
  for (int64_t i = 0; i < smaller_of(range.begin - from, keys); ++i) x[i] = -float_infinity;
  for (int64_t i = larger_of(range.end - from, 0); i < keys; ++i) x[i] = -float_infinity;
  for (int64_t i = keys; i < padded; ++i) x[i] = -float_infinity;
  return has_bias || has_mask || range.begin > from || range.end < from + keys;
}

// One step of the online softmax along a row of x, whose end is padded with -inf. Returns the factor for earlier sums.
template <typename T>
T online_softmax_row(const Call& call, const float* x, int64_t keys, T* weights, float& largest, T& total) {
  const Floats high = splat(call.exp2_high);
  const Floats low = splat(call.exp2_low);
  Floats tops = splat(largest);
  for (int64_t i = 0; i < keys; i += width) tops = larger(load(x + i), tops);
  float top = largest;
  for (int lane = 0; lane < width; ++lane) top = tops[lane] > top ? tops[lane] : top;
  const Floats reference = reference_of(splat(top));
  const T factor = exp2_of<T>(splat(largest) - reference, high, low).part[0][0];
  Vector<T> sum{};
  for (int64_t i = 0; i < keys; i += width) {
    const Weights<T> weight = exp2_of<T>(load(x + i) - reference, high, low);
    ATTUNE_UNROLL
    for (int part = 0; part < parts<T>; ++part) {
      sum += weight.part[part];
      store(weights + i + part * lanes<T>, weight.part[part]);
    }
  }
  largest = top;
  total = total * factor + sum_of<T>(sum);
  return factor;
}

template <Dtype dtype, typename T, int R>
void forward_rows_as(const Call& call, const Block& block, void* memory) {
  const Problem& p = *call.problem;
  Arena arena(memory);
  const RowScratch<T> scratch(p, arena);
  float largest[R];
  T total[R], rescale[R];
  int64_t begin = INT64_MAX, end = 0;
  for (int64_t r = 0; r < R; ++r) {
    largest[r] = -float_infinity;
    total[r] = 0;
    rescale[r] = 0;
    for (int64_t j = 0; j < scratch.dim_v; j += lanes<T>) store(scratch.out + r * scratch.dim_v + j, Vector<T>{});
    if (r >= block.count) {
      for (int64_t d = 0; d < scratch.dim_qk; d += width) store(scratch.q + r * scratch.dim_qk + d, Floats{});
      for (int64_t i = 0; i < key_alignment; ++i) scratch.weights[r * key_alignment + i] = 0;
      continue;
    }
    load_q_row(call, block, r, scratch.q + r * scratch.dim_qk);
    const KeyRange& range = block.visible[r];
    if (range.begin >= range.end) continue;
    begin = smaller_of(begin, range.begin);
    end = larger_of(end, range.end);
  }
  for (int64_t from = begin; from < end;) {
    const int64_t next = smaller_of(end, (from / key_alignment + 1) * key_alignment);
    const int64_t keys = next - from;
    row_scores<dtype, R>(call, block, from, keys, end - from, scratch.q, scratch.dim_qk, scratch.x);
    bool hidden = false;
    for (int r = 0; r < block.count; ++r) {
      if (stacked_row(call, block, r).row >= block.seq_q) {
        for (int64_t i = 0; i < keys; ++i) scratch.weights[r * key_alignment + i] = 0;
        continue;
      }
      float* x = scratch.x + r * key_alignment;
      hidden |= shape_row(call, block, r, from, keys, x, scratch.bias);
      rescale[r] = online_softmax_row(call, x, keys, scratch.weights + r * key_alignment, largest[r], total[r]);
    }
    if (hidden)
      row_values_all<dtype, T, R, true>(call, block, from, keys, end - from, scratch.weights, rescale, scratch.out,
                                        scratch.dim_v);
    else
      row_values_all<dtype, T, R, false>(call, block, from, keys, end - from, scratch.weights, rescale, scratch.out,
                                         scratch.dim_v);
    from = next;
  }
  for (int r = 0; r < block.count; ++r)
    finish_row(call, block, r, scratch.out + r * scratch.dim_v, largest[r], total[r]);
}

template <Dtype dtype, typename T>
void forward_rows_of(const Call& call, const Block& block, void* scratch) {
  if (block.count == 1) return forward_rows_as<dtype, T, 1>(call, block, scratch);
  if (block.count == 2) return forward_rows_as<dtype, T, 2>(call, block, scratch);
  if constexpr (few_rows >= 4)
    if (block.count <= 4) return forward_rows_as<dtype, T, 4>(call, block, scratch);
  if constexpr (few_rows >= 8) forward_rows_as<dtype, T, 8>(call, block, scratch);
}

inline void forward_rows(const Call& call, const Block& block, void* scratch) {
  with_dtype(call.problem->dtype, [&]<Dtype dtype>() {
    if constexpr (dtype == Dtype::f32)
      forward_rows_of<dtype, double>(call, block, scratch);
    else
      forward_rows_of<dtype, float>(call, block, scratch);
  });
}

template <typename T>
size_t rows_scratch_bytes(const Problem& p) {
  Arena arena(nullptr);
  const RowScratch<T> scratch(p, arena);
  return arena.used();
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
