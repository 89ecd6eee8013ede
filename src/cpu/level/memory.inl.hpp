// Between the caller's tensors and the packed float32 forms the products work on. Nothing here reads or writes an
// element outside the rows and columns it is asked for.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/products.inl.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int64_t round_up(int64_t x, int64_t multiple) { return (x + multiple - 1) / multiple * multiple; }
inline int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }

inline const char* element(const void* data, Dtype dtype, int64_t index) {
  return static_cast<const char*>(data) + index * (dtype == Dtype::f32 ? 4 : 2);
}

template <Dtype dtype>
constexpr int64_t size_of = dtype == Dtype::f32 ? 4 : 2;

// A vector of elements at `from`.
template <Dtype dtype>
Floats load_as_floats(const char* from) {
  if constexpr (dtype == Dtype::f32) return load_bytes<Floats>(from);
  if constexpr (dtype == Dtype::bf16) return floats_from_bf16(load_bytes<Halves>(from));
  if constexpr (dtype == Dtype::f16) return floats_from_f16(load_bytes<Halves>(from));
}

// The first `count` < width elements at `from`, then zeros.
template <Dtype dtype>
Floats load_as_floats(const char* from, int64_t count) {
  alignas(vector_bytes) char padded[vector_bytes] = {};
  __builtin_memcpy(padded, from, static_cast<size_t>(count * size_of<dtype>));
  return load_as_floats<dtype>(padded);
}

// use(i, elements i to i + width) over `count` elements, the last vector padded with zeros.
template <Dtype dtype, typename Use>
void for_each_vector(const char* from, int64_t count, const Use& use) {
  int64_t i = 0;
  for (; i + width <= count; i += width) use(i, load_as_floats<dtype>(from + i * size_of<dtype>));
  if (i < count) use(i, load_as_floats<dtype>(from + i * size_of<dtype>, count - i));
}

// Calls f with the dtype as a compile-time constant.
template <typename F>
void with_dtype(Dtype dtype, const F& f) {
  switch (dtype) {
    case Dtype::f16:
      return f.template operator()<Dtype::f16>();
    case Dtype::bf16:
      return f.template operator()<Dtype::bf16>();
    case Dtype::f32:
      return f.template operator()<Dtype::f32>();
  }
}

inline Floats times(const float* from, float factor) { return load(from) * factor; }
inline Floats times(const double* from, double factor) {
  return floats_from_doubles(load(from) * factor, load(from + double_width) * factor);
}

// The first `count` elements of a vector, or all of them, as elements of dtype.
template <Dtype dtype>
void store_elements(Floats value, char* to, int64_t count) {
  const auto elements = [&] {
    if constexpr (dtype == Dtype::f32) return value;
    if constexpr (dtype == Dtype::bf16) return bf16_from_floats(value);
    if constexpr (dtype == Dtype::f16) return f16_from_floats(value);
  }();
  if (count >= width)
    store_bytes(to, elements);
  else
    __builtin_memcpy(to, &elements, static_cast<size_t>(count * size_of<dtype>));
}

// `count` sums times `factor` as elements of dtype, zeros if that is 0; `from` is readable up to full vectors.
template <typename T>
void store_row(const T* from, T factor, void* data, Dtype dtype, int64_t first, int64_t count) {
  with_dtype(dtype, [&]<Dtype of>() {
    char* const to = static_cast<char*>(data) + first * size_of<of>;
    for (int64_t i = 0; i < count; i += width)
      store_elements<of>(factor == 0 ? Floats{} : times(from + i, factor), to + i * size_of<of>, count - i);
  });
}

// Transposes `width` rows of `dim` elements: use(i, element i of every row), up to a full vector. A row that is NULL is
// 0. Asks for the rows that lie `ahead` elements behind these.
template <typename Use>
void for_each_column(const char* const (&rows)[width], Dtype dtype, int64_t dim, int64_t ahead, const Use& use) {
  with_dtype(dtype, [&]<Dtype of>() {
    for (int64_t i = 0; i < dim; i += width) {
      Floats square[width];
      ATTUNE_UNROLL
      for (int row = 0; row < width; ++row) {
        square[row] = Floats{};
        if (rows[row] == nullptr) continue;
        const char* const from = rows[row] + i * size_of<of>;
        __builtin_prefetch(from + ahead * size_of<of>);
        square[row] = i + width <= dim ? load_as_floats<of>(from) : load_as_floats<of>(from, dim - i);
      }
      transpose(square);
      ATTUNE_UNROLL
      for (int j = 0; j < width; ++j) use(i + j, square[j]);
    }
  });
}

// Where a stacked row lies.
struct StackedRow {
  int64_t row = 0, head = 0;  // row of the sequence, query head
};
inline StackedRow stacked_row(const Call& call, const Block& block, int64_t lane) {
  const int64_t index = block.first + lane;
  if (call.group == 1) return {index, block.head_kv};
  return {index / call.group, block.head_kv * call.group + index % call.group};
}
inline int64_t q_offset(const Problem& p, const attune_strides& strides, const Block& block, StackedRow at) {
  const int64_t batch = (p.features & ATTUNE_PACKED) != 0 ? 0 : block.batch * strides.batch;
  return batch + (block.first_row_q + at.row) * strides.row + at.head * strides.head;
}
inline int64_t key_offset(const Problem& p, const attune_strides& strides, const Block& block, int64_t key) {
  const int64_t batch = (p.features & ATTUNE_PACKED) != 0 ? 0 : block.batch * strides.batch;
  return batch + (block.first_row_k + key) * strides.row + block.head_kv * strides.head;
}
inline int64_t score_offset(const attune_score_strides& strides, const Block& block, StackedRow at, int64_t key) {
  return block.batch * strides.batch + at.head * strides.head + at.row * strides.query + key * strides.key;
}

// Asks for a row of a tensor; it need not exist. Rows are often a page apart, where the processor does not guess them.
// Of many asked for at once most would be forgotten: so a loop over rows asks for the one rows_ahead of its own.
constexpr int64_t rows_ahead = 4;
inline void prefetch_row(const void* data, Dtype dtype, int64_t first, int64_t count) {
  const char* const end = element(data, dtype, first + count);
  for (const char* at = element(data, dtype, first); at < end; at += 64) __builtin_prefetch(at);
}

// Where a stacked row of q lies; NULL where it counts as 0, because it is not in use, or the scale is 0.
inline const char* q_row(const Call& call, const Block& block, int64_t lane) {
  const Problem& p = *call.problem;
  const StackedRow at = stacked_row(call, block, lane);
  if (at.row >= block.seq_q || call.q_factor == 0) return nullptr;
  return element(call.operands->in(Operand::q), p.dtype, q_offset(p, p.q, block, at));
}

inline bool scale_is_within(const Problem& p, float most) { return p.scale < most && p.scale > -most; }
// Products of pairs of bf16 flush scores below 2^-126 to 0, which such a scale would make large.
constexpr float most_scale_in_pairs = 0x1p90f;

// One row of q as floats with the sign of the scale.
inline void load_q_row(const Call& call, const Block& block, int64_t lane, float* to) {
  const Problem& p = *call.problem;
  const int64_t padded = round_up(p.dim_qk, width);
  if (const char* from = q_row(call, block, lane); from != nullptr) {
    with_dtype(p.dtype, [&]<Dtype dtype>() {
      for_each_vector<dtype>(from, p.dim_qk, [&](int64_t d, Floats value) { store(to + d, value * call.q_factor); });
    });
  } else {
    for (int64_t d = 0; d < padded; d += width) store(to + d, Floats{});
  }
}

// Bias of `keys` keys for one stacked row: to[i * pitch].
inline void load_bias(const Call& call, const Block& block, int64_t lane, int64_t key, int64_t keys, float* to,
                      int64_t pitch) {
  const Problem& p = *call.problem;
  const char* from = element(call.operands->in(Operand::bias), p.bias_dtype,
                             score_offset(p.bias, block, stacked_row(call, block, lane), key));
  const int64_t step = p.bias.key * (p.bias_dtype == Dtype::f32 ? 4 : 2);
  if (p.bias_dtype == Dtype::f32) {
    for (int64_t i = 0; i < keys; ++i) __builtin_memcpy(to + i * pitch, from + i * step, 4);
    return;
  }
  alignas(vector_bytes) float converted[width];
  for (int64_t i = 0; i < keys; i += width) {
    const int64_t count = smaller_of(width, keys - i);
    uint16_t gathered[width] = {};
    for (int64_t j = 0; j < count; ++j) __builtin_memcpy(gathered + j, from + (i + j) * step, 2);
    const Halves halves = load_bytes<Halves>(gathered);
    store(converted, p.bias_dtype == Dtype::bf16 ? floats_from_bf16(halves) : floats_from_f16(halves));
    for (int64_t j = 0; j < count; ++j) to[(i + j) * pitch] = converted[j];
  }
}

// Where the mask of a stacked row lies, from `key` on.
inline const uint8_t* mask_row(const Call& call, const Block& block, int64_t lane, int64_t key) {
  const Problem& p = *call.problem;
  return call.operands->in<uint8_t>(Operand::mask) + score_offset(p.mask, block, stacked_row(call, block, lane), key);
}

// Nothing below branches on a byte of a mask: zeros may be anywhere, and every other one would be guessed wrong.

// Hides the keys whose mask byte is 0 from one stacked row: x[i * pitch] = -inf.
inline void apply_mask(const Call& call, const Block& block, int64_t lane, int64_t key, int64_t keys, float* x,
                       int64_t pitch) {
  const uint8_t* const mask = mask_row(call, block, lane, key);
  const int64_t step = call.problem->mask.key;
  if (pitch == 1 && step == 1) {  // which the compiler turns into vectors
    for (int64_t i = 0; i < keys; ++i) {
      const float value = x[i];
      x[i] = mask[i] != 0 ? value : -__builtin_inff();
    }
    return;
  }
  for (int64_t i = 0; i < keys; ++i) {
    const uint32_t seen = -static_cast<uint32_t>(mask[i * step] != 0), minus_infinity = 0xff800000u;
    uint32_t bits;
    __builtin_memcpy(&bits, x + i * pitch, sizeof bits);
    bits = (bits & seen) | (minus_infinity & ~seen);
    __builtin_memcpy(x + i * pitch, &bits, sizeof bits);
  }
}

// Bit i of the result: the i-th byte, of up to mask_bits, is 0.
constexpr int64_t mask_bits = 32;
inline uint32_t zeros_of(const uint8_t* mask, int64_t step, int64_t count) {
#if defined(__AVX512F__)
  if (step == 1 && count == mask_bits) {
    const __m256i bytes = load_bytes<__m256i>(mask);
    return _mm256_testn_epi8_mask(bytes, bytes);
  }
#elif defined(__AVX2__)
  if (step == 1 && count == mask_bits)
    return static_cast<uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(load_bytes<__m256i>(mask), _mm256_setzero_si256())));
#endif
  uint32_t zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros |= static_cast<uint32_t>(mask[i * step] == 0) << i;
  return zeros;
}

// Hides masked keys from `count` stacked rows, from `first` on: x is (keys x rows), rows a multiple of the width.
inline void apply_mask_to_rows(const Call& call, const Block& block, int first, int count, int64_t key, int64_t keys,
                               float* x, int rows) {
  alignas(vector_bytes) uint32_t hidden[tile_rows] = {};  // per row, mask_bits keys
  for (int64_t from = 0; from < keys; from += mask_bits) {
    const int64_t some = smaller_of(mask_bits, keys - from);
    const uint8_t* before = nullptr;
    for (int lane = 0; lane < count; ++lane) {
      if (stacked_row(call, block, first + lane).row >= block.seq_q) continue;
      const uint8_t* const mask = mask_row(call, block, first + lane, key + from);
      hidden[lane] = mask == before ? hidden[lane - 1] : zeros_of(mask, call.problem->mask.key, some);
      before = mask;
    }
    for (int v = 0; v < rows; v += width) {
      const Words of_rows = load_bytes<Words>(hidden + v);
      for (int64_t i = 0; i < some; ++i) {
        float* const at = x + (from + i) * rows + v;
        store(at, (of_rows & (1u << i)) != 0 ? splat(-__builtin_inff()) : load(at));
      }
    }
  }
}

// What a row's sums are relative to, and what they must be divided by: `total`, the sum of the weights as they were
// used. The LSE is that of the weights before rounding. `largest` is in units of x.
struct RowTotals {
  double largest, total, lse_total;
};

// What the sums of a row must be multiplied by: one over its weights and the sink's, 0 where it saw no key. Writes lse.
inline double end_weights(const Call& call, const Block& block, StackedRow at, const RowTotals& row) {
  const Problem& p = *call.problem;
  const double minus_infinity = -__builtin_inf();
  double top = minus_infinity, denominator = 0, weight = 0;  // LSE = top + log(denominator)
  if (at.row < block.seq_q) {
    const bool has_sink = (p.features & ATTUNE_SINK) != 0;
    const double sink =
        has_sink ? static_cast<double>(call.operands->in<float>(Operand::sink)[at.head]) : minus_infinity;
    if (row.total == 0) {
      top = sink;
      denominator = 1;
    } else {
      const double score = row.largest * call.unit;
      top = sink > score ? sink : score;
      const double rescale = top == score ? 1 : __builtin_exp(score - top);
      const double of_sink = sink == minus_infinity ? 0 : sink == top ? 1 : __builtin_exp(sink - top);
      weight = rescale / (row.total * rescale + of_sink);
      denominator = row.lse_total * rescale + of_sink;
    }
  }
  if ((p.features & ATTUNE_LSE) != 0) {
    const double lse = denominator == 0 ? minus_infinity : top + __builtin_log(denominator);
    call.operands->out<float>(Operand::lse)[q_offset(p, p.lse, block, at)] = static_cast<float>(lse);
  }
  return weight;
}

// Ends a row. Sums are readable up to full vectors.
template <typename T>
void write_row(const Call& call, const Block& block, int64_t lane, const T* sums, const RowTotals& row) {
  const Problem& p = *call.problem;
  const StackedRow at = stacked_row(call, block, lane);
  const auto weight = static_cast<T>(end_weights(call, block, at, row));
  store_row(sums, weight, call.operands->out(Operand::o), p.dtype, q_offset(p, p.o, block, at), p.dim_v);
}

// Ends a row, or leaves it to join().
template <typename T>
void finish_row(const Call& call, const Block& block, int64_t lane, const T* sums, const RowTotals& row) {
  if (block.partial == nullptr) return write_row(call, block, lane, sums, row);
  double* to = block.partial + lane * (call.problem->dim_v + partial_header);
  to[0] = row.largest;
  to[1] = row.total;
  to[2] = row.lse_total;
  for (int64_t j = 0; j < call.problem->dim_v; ++j) to[partial_header + j] = sums[j];
}

inline void join(const Call& call, const Block& block, const double* parts, int64_t count, int64_t stride) {
  const int64_t dim = call.problem->dim_v;
  const double factor = static_cast<double>(call.exp2_high) + call.exp2_low;
  for (int64_t lane = 0; lane < block.count; ++lane) {
    const double* row = parts + lane * (dim + partial_header);
    RowTotals joined{-__builtin_inf(), 0, 0};
    for (int64_t i = 0; i < count; ++i)
      if (row[i * stride] > joined.largest) joined.largest = row[i * stride];
    double sums[max_head_dim] = {};
    for (int64_t i = 0; i < count; ++i) {
      const double* part = row + i * stride;
      if (part[1] == 0) continue;  // saw no key
      const double weight = part[0] == joined.largest ? 1 : __builtin_exp2((part[0] - joined.largest) * factor);
      joined.total += part[1] * weight;
      joined.lse_total += part[2] * weight;
      for (int64_t j = 0; j < dim; ++j) sums[j] += part[partial_header + j] * weight;
    }
    write_row(call, block, lane, sums, joined);
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
