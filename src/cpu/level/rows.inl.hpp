// The row path, for a few rows against many keys (decoding): lanes run along the head dimension, K and V are read in
// place and once, so memory bandwidth is the limit.
//
// Memory is read in the order it lies in. Where the rows of neighbouring KV heads do, a task has several heads, and
// takes a block of keys of all of them before the next block.
#pragma once

#include "cpu/level/ahead.inl.hpp"
#include "cpu/level/block.inl.hpp"
#include "cpu/level/level.hpp"
#include "cpu/level/memory.inl.hpp"
#include "cpu/level/softmax.inl.hpp"
#include "cpu/level/vector.inl.hpp"
#if defined(ATTUNE_PAIRS_IN_VECTORS)
#include "cpu/level/row_pairs.inl.hpp"
#endif

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int few_rows = width / 2;
// Accumulators of the second product.
constexpr int row_accumulators = vector_bytes == 64 ? 16 : 8;
// Keys of a block of R rows. One block ahead is fetched: the processor's own prefetching, which does most of the work,
// follows such a near and orderly trail, and reads slower behind one that runs far ahead. With more rows there is more
// to load and store at the end of a block.
template <int R>
constexpr int64_t row_block_keys = R >= 4 ? 32 : 16;
static_assert(key_alignment % row_block_keys<4> == 0 && row_block_keys<1> % width == 0);

// How many vectors of floats one load of elements makes. Two bf16 are a word, whose halves are a shift and a mask away
// from being floats: even elements make one vector, odd ones the other.
template <Dtype dtype>
constexpr int pieces = dtype == Dtype::bf16 ? 2 : 1;
template <Dtype dtype>
constexpr int64_t unit = pieces<dtype> * width;  // elements of a load

// The `count` elements at `from`, or as many as a load has, then zeros.
template <Dtype dtype>
void load_pieces(const char* from, int64_t count, Floats (&to)[pieces<dtype>]) {
  if constexpr (pieces<dtype> == 1) {
    to[0] = count >= width ? load_as_floats<dtype>(from) : load_as_floats<dtype>(from, count);
  } else {
    Words words;
    if (count >= unit<dtype>) {
      words = load_bytes<Words>(from);
    } else {
      alignas(vector_bytes) char padded[vector_bytes] = {};
      __builtin_memcpy(padded, from, static_cast<size_t>(count) * 2);
      words = load_bytes<Words>(padded);
    }
    to[0] = bits_as<Floats>(words << 16);
    to[1] = bits_as<Floats>(words & 0xffff0000u);
  }
}

// Whether R rows are multiplied in pairs of bf16: their scores, and their values. Fewer wait for memory anyway.
#if defined(ATTUNE_PAIRS_IN_VECTORS)
template <Dtype dtype, int R>
constexpr bool scores_in_pairs = dtype == Dtype::bf16 && R > 1;
template <Dtype dtype, int R>
constexpr bool values_in_pairs = dtype == Dtype::bf16 && R >= 4;
#else
template <Dtype, int>
constexpr bool scores_in_pairs = false;
template <Dtype, int>
constexpr bool values_in_pairs = false;
#endif

// The state of one KV head.
template <typename T>
struct HeadRows {
  // few_rows x padded dim_qk. Where scores_in_pairs: pairs in place of every other vector, or pairs x 8 rows.
  float* q = nullptr;
  T* out = nullptr;             // few_rows x padded dim_v
  float* x = nullptr;           // few_rows x key_alignment
  T* weights = nullptr;         // few_rows x key_alignment; the same memory as x where the types agree
  uint16_t* rounded = nullptr;  // the same as bf16, where values_in_pairs
  float largest[few_rows];
  Vector<T> total[few_rows], rounded_total[few_rows];  // lanes to be added at the end
  T rescale[few_rows];
};

template <typename T>
struct RowScratch {
  HeadRows<T> heads[max_task_heads];
  float* bias = nullptr;
  T* out_row = nullptr;           // a row of O as it goes
  int64_t dim_qk = 0, dim_v = 0;  // padded

  RowScratch(const Problem& p, int count, Arena& arena) {
    dim_qk = round_up(p.dim_qk, 2 * width);
    dim_v = round_up(p.dim_v, 2 * width);
    bias = arena.take<float>(key_alignment);
    out_row = arena.take<T>(dim_v);
    for (HeadRows<T>* head = heads; head < heads + count; ++head) {
      head->q = arena.take<float>(few_rows * dim_qk);
      head->out = arena.take<T>(few_rows * dim_v);
      head->x = arena.take<float>(few_rows * key_alignment);
      if constexpr (sizeof(T) == sizeof(float))
        head->weights = head->x;
      else
        head->weights = arena.take<T>(few_rows * key_alignment);
      if constexpr (values_in_pairs<Dtype::bf16, few_rows> && sizeof(T) == sizeof(float))
        head->rounded = arena.take<uint16_t>(few_rows * key_alignment);
    }
  }
};

// x[r][i] = q[r] . k[i] for R rows, as many keys at a time as fill a vector with their scores; x is written up to a
// multiple of that.
template <Dtype dtype, int R>
void row_scores(const Problem& p, const char* first, int64_t keys, RowsAhead& ahead, const float* q, int64_t q_pitch,
                float* x) {
  constexpr int keys_at_once = width / R;
  constexpr int n = pieces<dtype>;
  const int64_t step = p.k.row * size_of<dtype>;
  const int64_t whole = p.dim_qk / unit<dtype> * unit<dtype>;
  for (int64_t i = 0; i < keys; i += keys_at_once) {
    const char* k[keys_at_once];
    for (int j = 0; j < keys_at_once; ++j) {
      k[j] = first + smaller_of(i + j, keys - 1) * step;
      ahead.fetch();
    }
    Floats sum[width] = {};
    const auto add = [&](int64_t d, int64_t count) {
#if defined(ATTUNE_PAIRS_IN_VECTORS)
      if constexpr (scores_in_pairs<dtype, R>) return add_score_pairs<R>(k, d, count, q, q_pitch, sum);
#endif
      Floats q_row[R][n];
      ATTUNE_UNROLL
      for (int r = 0; r < R; ++r) {
        ATTUNE_UNROLL
        for (int piece = 0; piece < n; ++piece) q_row[r][piece] = load(q + r * q_pitch + d + piece * width);
      }
      ATTUNE_UNROLL
      for (int j = 0; j < keys_at_once; ++j) {
        Floats key[n];
        load_pieces<dtype>(k[j] + d * size_of<dtype>, count, key);
        ATTUNE_UNROLL
        for (int r = 0; r < R; ++r) {
          Floats& to = sum[r * keys_at_once + j];
          ATTUNE_UNROLL
          for (int piece = 0; piece < n; ++piece) to = multiply_add(key[piece], q_row[r][piece], to);
        }
      }
    };
    for (int64_t d = 0; d < whole; d += unit<dtype>) add(d, unit<dtype>);
    if (whole < p.dim_qk) add(whole, p.dim_qk - whole);
    alignas(vector_bytes) float scores[width];
    store(scores, sums_of(sum));
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r)
      __builtin_memcpy(x + r * key_alignment + i, scores + r * keys_at_once, keys_at_once * sizeof(float));
  }
}

// out[r] = out[r] * rescale[r] + sum over keys of weights[r][i] * v[i], for R rows and Loads loads of columns. The last
// load has `tail` elements, if fewer than a full one.
template <Dtype dtype, typename T, int R, int Loads, bool skip_zeros>
void row_values(const char* v, int64_t step, int64_t keys, int64_t tail, RowsAhead* ahead, const T* weights,
                const T* rescale, T* out, int64_t out_pitch) {
  constexpr int n = pieces<dtype> * parts<T>;
  Vector<T> sum[R][Loads * n] = {};
  for (int64_t i = 0; i < keys; ++i, v += step) {
    if (ahead != nullptr) ahead->fetch();
    Vector<T> value[Loads * n];
    ATTUNE_UNROLL
    for (int c = 0; c < Loads; ++c) {
      Floats loaded[pieces<dtype>];
      load_pieces<dtype>(v + c * unit<dtype> * size_of<dtype>, c + 1 < Loads ? unit<dtype> : tail, loaded);
      ATTUNE_UNROLL
      for (int piece = 0; piece < pieces<dtype>; ++piece) {
        if constexpr (parts<T> == 1) {
          value[c * n + piece] = loaded[piece];
        } else {
          value[c * n + piece * 2] = low_doubles(loaded[piece]);
          value[c * n + piece * 2 + 1] = high_doubles(loaded[piece]);
        }
      }
    }
    ATTUNE_UNROLL
    for (int r = 0; r < R; ++r) {
      const Vector<T> weight = splat(weights[r * key_alignment + i]);
      ATTUNE_UNROLL
      for (int c = 0; c < Loads * n; ++c) {
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
    for (int c = 0; c < Loads * n; ++c) {
      T* at = out + r * out_pitch + c * lanes<T>;
      store(at, multiply_add(load(at), factor, sum[r][c]));
    }
  }
}

// The same for the columns from `column` on, as many loads at a time as there are columns and registers for.
template <Dtype dtype, typename T, int R, bool skip_zeros, int Loads>
void row_values_from(int64_t column, const Problem& p, const char* v, int64_t keys, RowsAhead* ahead, const T* weights,
                     const T* rescale, T* out, int64_t out_pitch) {
  for (; column + (Loads - 1) * unit<dtype> < p.dim_v; column += Loads * unit<dtype>) {
    const int64_t tail = smaller_of(unit<dtype>, p.dim_v - column - (Loads - 1) * unit<dtype>);
    row_values<dtype, T, R, Loads, skip_zeros>(v + column * size_of<dtype>, p.v.row * size_of<dtype>, keys, tail, ahead,
                                               weights, rescale, out + column, out_pitch);
    ahead = nullptr;
  }
  if constexpr (Loads > 1)
    row_values_from<dtype, T, R, skip_zeros, Loads / 2>(column, p, v, keys, ahead, weights, rescale, out, out_pitch);
}

template <Dtype dtype, typename T, int R, bool skip_zeros>
void row_values_all(const Problem& p, const char* v, int64_t keys, RowsAhead& ahead, const T* weights, const T* rescale,
                    T* out, int64_t out_pitch) {
  constexpr int most = row_accumulators / R / parts<T> / pieces<dtype>;
  row_values_from<dtype, T, R, skip_zeros, (most > 0 ? most : 1)>(0, p, v, keys, &ahead, weights, rescale, out,
                                                                  out_pitch);
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
T online_softmax_row(const Call& call, const float* x, int64_t keys, T* weights, float& largest, Vector<T>& total) {
  const Floats high = splat(call.exp2_high);
  const Floats low = splat(call.exp2_low);
  Floats tops = splat(largest);
  for (int64_t i = 0; i < keys; i += width) tops = larger(load(x + i), tops);
  const float top = largest_of(tops);
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
  total = total * splat(factor) + sum;
  return factor;
}

// The rows of q and their first state.
template <Dtype dtype, typename T, int R>
void begin_head(const Call& call, const Block& block, const RowScratch<T>& scratch, HeadRows<T>& head) {
  for (int64_t r = 0; r < R; ++r) {
    head.largest[r] = -float_infinity;
    head.total[r] = head.rounded_total[r] = Vector<T>{};
    head.rescale[r] = 0;
    for (int64_t j = 0; j < scratch.dim_v; j += lanes<T>) store(head.out + r * scratch.dim_v + j, Vector<T>{});
  }
  for (int64_t d = 0; d < R * scratch.dim_qk; d += width) store(head.q + d, Floats{});
  for (int64_t r = 0; r < block.count; ++r) {
    const char* const from = q_row(call, block, r);
    if (from == nullptr) continue;
    for (int64_t d = 0; d < call.problem->dim_qk; d += unit<dtype>) {
      float* const q = head.q + r * scratch.dim_qk + d;
      Floats loaded[pieces<dtype>];
      load_pieces<dtype>(from + d * size_of<dtype>, call.problem->dim_qk - d, loaded);
      for (Floats& piece : loaded) piece *= call.q_factor;
#if defined(ATTUNE_PAIRS_IN_VECTORS)
      if constexpr (scores_in_pairs<dtype, R>) {
        const Words pairs = bits_as<Words>(loaded[0]) >> 16 | bits_as<Words>(loaded[1]);
        if constexpr (R == lane_rows)
          put_pairs_of_row(pairs, r, head.q + d / 2 * lane_rows);
        else
          store_bytes(q, pairs);
        continue;
      }
#endif
      for (int piece = 0; piece < pieces<dtype>; ++piece) store(q + piece * width, loaded[piece]);
    }
  }
}

// The sums of a row in the order of its columns.
template <Dtype dtype, typename T, int R>
const T* in_order(const RowScratch<T>& scratch, const T* sums) {
  if constexpr (pieces<dtype> == 1) return sums;
  for (int64_t j = 0; j < scratch.dim_v; j += 2 * width) {
    const Vector<T> first = load(sums + j), second = load(sums + j + width);
#if defined(ATTUNE_PAIRS_IN_VECTORS)
    if constexpr (values_in_pairs<dtype, R>) {
      put_in_order(first, second, scratch.out_row + j);
      continue;
    }
#endif
    store(scratch.out_row + j, interleave_low(first, second));
    store(scratch.out_row + j + width, interleave_high(first, second));
  }
  return scratch.out_row;
}

// The softmax of a chunk of keys. True if some row may not see some of them.
template <Dtype dtype, typename T, int R>
bool weigh_chunk(const Call& call, const Block& block, const RowScratch<T>& scratch, HeadRows<T>& head, int64_t from,
                 int64_t keys) {
  bool hidden = false;
  for (int r = 0; r < R; ++r) {
    T* const weights = head.weights + r * key_alignment;
    if (r >= block.count || stacked_row(call, block, r).row >= block.seq_q) {
      for (int64_t i = 0; i < keys; ++i) weights[i] = 0;
      continue;
    }
    float* const x = head.x + r * key_alignment;
    hidden |= shape_row(call, block, r, from, keys, x, scratch.bias);
    head.rescale[r] = online_softmax_row(call, x, keys, weights, head.largest[r], head.total[r]);
  }
#if defined(ATTUNE_PAIRS_IN_VECTORS)
  if constexpr (values_in_pairs<dtype, R>) {
    for (int r = 0; r < R; ++r)
      head.rounded_total[r] = head.rounded_total[r] * splat(head.rescale[r]) +
                              round_weights(head.weights + r * key_alignment, keys, head.rounded + r * key_alignment);
  }
#endif
  return hidden;
}

// The scores of `keys` keys of a head, the first of them at `k`.
template <Dtype dtype, typename T, int R>
void compute_scores(const Problem& p, const RowScratch<T>& scratch, const HeadRows<T>& head, const char* k,
                    int64_t keys, RowsAhead& ahead, float* x) {
#if defined(ATTUNE_PAIRS_IN_VECTORS)
  if constexpr (scores_in_pairs<dtype, R> && R == lane_rows)
    row_scores_in_lanes(p, k, keys, ahead, head.q, x);
  else
#endif
    row_scores<dtype, R>(p, k, keys, ahead, head.q, scratch.dim_qk, x);
}

// The values of `keys` keys of a head, from the one on whose weights are number `first` of the chunk.
template <Dtype dtype, typename T, int R>
void add_values(const Problem& p, [[maybe_unused]] int rows, const RowScratch<T>& scratch, const HeadRows<T>& head,
                const char* v, int64_t keys, int64_t first, bool hidden, RowsAhead& ahead) {
#if defined(ATTUNE_PAIRS_IN_VECTORS)
  if constexpr (values_in_pairs<dtype, R>) {
    row_values_in_pairs_from<R>(0, p, v, keys, &ahead, rows, head.rounded + first,
                                {head.out, scratch.dim_v, head.rescale});
  } else
#endif
  {
    const T* const weights = head.weights + first;
    if (hidden)
      row_values_all<dtype, T, R, true>(p, v, keys, ahead, weights, head.rescale, head.out, scratch.dim_v);
    else
      row_values_all<dtype, T, R, false>(p, v, keys, ahead, weights, head.rescale, head.out, scratch.dim_v);
  }
}

// One KV head of a task that has several.
inline Block block_of_head(const Block& block, int head) {
  Block one = block;
  one.head_kv += head;
  return one;
}

// The keys from the first to the last that some row sees; none: an end of 0.
inline KeyRange keys_seen(const Block& block) {
  KeyRange all{INT64_MAX, 0};
  for (int r = 0; r < block.count; ++r) {
    const KeyRange& range = block.visible[r];
    if (range.begin >= range.end) continue;
    all = {smaller_of(all.begin, range.begin), larger_of(all.end, range.end)};
  }
  return all;
}

template <Dtype dtype, typename T, int R>
void forward_rows_as(const Call& call, const Block& block, void* memory) {
  const Problem& p = *call.problem;
  Arena arena(memory);
  RowScratch<T> scratch(p, block.heads, arena);
  for (int h = 0; h < block.heads; ++h)
    begin_head<dtype, T, R>(call, block_of_head(block, h), scratch, scratch.heads[h]);
  const KeyRange seen = keys_seen(block);
  // Pairs of keys begin with an even one, whatever rows see.
  const int64_t begin = values_in_pairs<dtype, R> ? seen.begin / 2 * 2 : seen.begin, end = seen.end;

  const auto k_at = [&](int64_t key) {
    return element(call.operands->in(Operand::k), dtype, key_offset(p, p.k, block, key));
  };
  const auto v_at = [&](int64_t key) {
    return element(call.operands->in(Operand::v), dtype, key_offset(p, p.v, block, key));
  };
  // Blocks end at multiples of their size whatever key the task begins with.
  const auto block_end = [&](int64_t from) {
    return smaller_of(end, (from / row_block_keys<R> + 1) * row_block_keys<R>);
  };
  constexpr int64_t size = size_of<dtype>;
  // After the last keys those that the same thread most likely reads next.
  const auto k_ahead = [&](int64_t from) {
    const int64_t keys = from < end ? block_end(from) - from : smaller_of(row_block_keys<R>, block.seq_k - from);
    return RowsAhead(keys > 0 ? k_at(from) : nullptr, p.k.row * size, p.k.head * size, p.dim_qk * size, keys,
                     block.heads);
  };
  const auto v_ahead = [&](int64_t from) {
    return RowsAhead(v_at(from), p.v.row * size, p.v.head * size, p.dim_v * size, block_end(from) - from, block.heads);
  };

  for (int64_t from = begin; from < end;) {
    const int64_t next = smaller_of(end, (from / key_alignment + 1) * key_alignment);
    for (int64_t key = from; key < next;) {
      const int64_t after = block_end(key);
      RowsAhead ahead = after < next ? k_ahead(after) : v_ahead(from);
      for (int h = 0; h < block.heads; ++h) {
        const HeadRows<T>& head = scratch.heads[h];
        compute_scores<dtype, T, R>(p, scratch, head, k_at(key) + h * p.k.head * size, after - key, ahead,
                                    head.x + (key - from));
      }
      key = after;
    }
    bool hidden = false;
    for (int h = 0; h < block.heads; ++h)
      hidden |= weigh_chunk<dtype, T, R>(call, block_of_head(block, h), scratch, scratch.heads[h], from, next - from);
    for (int64_t key = from; key < next;) {
      const int64_t after = block_end(key);
      RowsAhead ahead = after < next ? v_ahead(after) : k_ahead(next);
      for (int h = 0; h < block.heads; ++h) {
        HeadRows<T>& head = scratch.heads[h];
        add_values<dtype, T, R>(p, block.count, scratch, head, v_at(key) + h * p.v.head * size, after - key, key - from,
                                hidden, ahead);
        for (T& factor : head.rescale) factor = 1;
      }
      key = after;
    }
    from = next;
  }

  for (int h = 0; h < block.heads; ++h) {
    const HeadRows<T>& head = scratch.heads[h];
    Block of = block_of_head(block, h);
    if (of.partial != nullptr) of.partial += h * block.partial_head;
    for (int r = 0; r < block.count; ++r) {
      const T total = sum_of<T>(head.total[r]);
      const T of_weights = values_in_pairs<dtype, R> ? sum_of<T>(head.rounded_total[r]) : total;
      finish_row(call, of, r, in_order<dtype, T, R>(scratch, head.out + r * scratch.dim_v),
                 {head.largest[r], of_weights, total});
    }
  }
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
  const RowScratch<T> scratch(p, static_cast<int>(smaller_of(p.heads_kv, max_task_heads)), arena);
  return arena.used();
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
