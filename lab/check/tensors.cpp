#include "lab/check/tensors.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "core/error.hpp"

namespace attune::lab {
namespace {

constexpr std::byte poison_byte{0xff};
constexpr size_t red_zone_bytes = 256;  // a multiple of the allocator's alignment, and above any shift

struct Extent {
  int64_t count;
  int64_t* stride;
};

// Gives the dimensions, from the innermost (smallest stride) outwards, strides with `gap` elements between them.
template <size_t n>
void spread(std::array<Extent, n> extents, int64_t innermost, int64_t gap) {
  std::ranges::stable_sort(extents, [](const Extent& a, const Extent& b) { return *a.stride < *b.stride; });
  int64_t next = innermost;
  for (const Extent& extent : extents) {
    if (*extent.stride == 0) continue;  // broadcast
    *extent.stride = next;
    next = next * std::max<int64_t>(extent.count, 1) + gap;
  }
}

int64_t gap_of(Storage storage) {
  switch (storage) {
    case Storage::dense:
      return 0;
    case Storage::padded:
      return 8;
    case Storage::odd:
      return 3;
    case Storage::reversed:
      return 0;
  }
  return 0;
}

// The elements of a tensor in memory: how many there are from the lowest to the highest, and which of them is the
// element that strides count from.
struct Span {
  int64_t count = 0, first = 0;
};

Span span_of(std::initializer_list<std::pair<int64_t, int64_t>> extents_and_strides, int64_t innermost) {
  Span span{innermost, 0};
  for (const auto& [extent, stride] : extents_and_strides) {
    if (extent == 0) return {};
    span.count += (extent - 1) * std::abs(stride);
    if (stride < 0) span.first += (extent - 1) * -stride;
  }
  return span;
}

Span span_of(const attune_strides& s, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
  return span_of({{batch, s.batch}, {rows, s.row}, {heads, s.head}}, dim);
}

Span span_of(const attune_score_strides& s, const Problem& p) {
  return span_of({{p.batch, s.batch}, {p.heads_q, s.head}, {p.seq_q, s.query}, {p.seq_k, s.key}}, 1);
}

void reverse(attune_strides& s) { s = {-s.batch, -s.row, -s.head}; }
void reverse(attune_score_strides& s) { s = {-s.batch, -s.head, -s.query, -s.key}; }

// Marks the bytes of `shadow` that elements of `buffer` own.
void own(std::vector<bool>& shadow, const Buffer& buffer, int64_t first_element, int64_t elements,
         int64_t element_bytes) {
  const auto begin = buffer.offset_bytes() + static_cast<size_t>(first_element * element_bytes);
  const auto end = begin + static_cast<size_t>(elements * element_bytes);
  std::fill(shadow.begin() + static_cast<ptrdiff_t>(begin), shadow.begin() + static_cast<ptrdiff_t>(end), true);
}

std::string first_stray(const std::vector<bool>& owned, const Buffer& buffer, std::string_view name) {
  const auto whole = buffer.whole();
  for (size_t i = 0; i < whole.size(); ++i) {
    if (owned[i] || whole[i] == poison_byte) continue;
    const auto byte = static_cast<int64_t>(i) - static_cast<int64_t>(buffer.begin_bytes());
    const bool inside = byte >= 0 && byte < static_cast<int64_t>(buffer.data_bytes());
    return fmt::format("{} was written at byte {} of {}, {}", name, byte, buffer.data_bytes(),
                       inside ? "between its elements" : "outside of it");
  }
  return {};
}

}  // namespace

std::string_view name_of(Storage storage) {
  switch (storage) {
    case Storage::dense:
      return "dense";
    case Storage::padded:
      return "padded";
    case Storage::odd:
      return "odd";
    case Storage::reversed:
      return "reversed";
  }
  return "?";
}

Storage storage_from(std::string_view name) {
  for (const Storage storage : all_storages)
    if (name_of(storage) == name) return storage;
  fail(ATTUNE_INVALID_ARGUMENT, "storage is '{}'; it must be dense, padded, odd or reversed", name);
}

Buffer::Buffer(int64_t elements, int64_t element_bytes, int64_t shift_elements, int64_t first_element)
    : begin_(red_zone_bytes + static_cast<size_t>(shift_elements * element_bytes)),
      offset_(begin_ + static_cast<size_t>(first_element * element_bytes)),
      data_bytes_(static_cast<size_t>(elements * element_bytes)) {
  bytes_.assign(data_bytes_ + 2 * red_zone_bytes, poison_byte);
}

void Buffer::poison() { std::ranges::fill(bytes_, poison_byte); }

Problem with_storage(const Problem& problem, Storage storage) {
  Problem p = problem;
  if (storage == Storage::dense) return p;
  if (storage == Storage::reversed) {
    for (attune_strides* strides : {&p.q, &p.k, &p.v, &p.o, &p.lse}) reverse(*strides);
    for (attune_score_strides* strides : {&p.bias, &p.mask}) reverse(*strides);
    return p;
  }
  const int64_t gap = gap_of(storage);
  const auto spread_rows = [&](attune_strides& s, int64_t rows, int64_t heads, int64_t dim) {
    if (p.packed()) {
      spread<2>({Extent{rows, &s.row}, Extent{heads, &s.head}}, dim + gap, gap);
    } else {
      spread<3>({Extent{p.batch, &s.batch}, Extent{rows, &s.row}, Extent{heads, &s.head}}, dim + gap, gap);
    }
  };
  const int64_t rows_q = p.packed() ? p.total_q : p.seq_q;
  const int64_t rows_k = p.packed() ? p.total_k : p.seq_k;
  spread_rows(p.q, rows_q, p.heads_q, p.dim_qk);
  spread_rows(p.k, rows_k, p.heads_kv, p.dim_qk);
  spread_rows(p.v, rows_k, p.heads_kv, p.dim_v);
  spread_rows(p.o, rows_q, p.heads_q, p.dim_v);
  if (p.has(ATTUNE_LSE)) spread_rows(p.lse, rows_q, p.heads_q, 1);
  const auto spread_scores = [&](attune_score_strides& s) {
    spread<4>(
        {Extent{p.batch, &s.batch}, Extent{p.heads_q, &s.head}, Extent{p.seq_q, &s.query}, Extent{p.seq_k, &s.key}},
        1 + gap, gap);
  };
  if (p.has(ATTUNE_BIAS)) spread_scores(p.bias);
  if (p.has(ATTUNE_MASK)) spread_scores(p.mask);
  return p;
}

Tensors allocate(const Problem& problem, Storage storage) {
  Tensors t;
  const Problem& p = t.problem = with_storage(problem, storage);
  const int64_t shift = storage == Storage::odd ? 1 : 0;
  const int64_t batch = p.packed() ? 1 : p.batch;
  const int64_t rows_q = p.packed() ? p.total_q : p.seq_q;
  const int64_t rows_k = p.packed() ? p.total_k : p.seq_k;
  const auto buffer = [shift](const Span& span, int64_t element_bytes) {
    return Buffer(span.count, element_bytes, shift, span.first);
  };
  const int64_t element = bytes_of(p.dtype);
  t.q = buffer(span_of(p.q, batch, rows_q, p.heads_q, p.dim_qk), element);
  t.k = buffer(span_of(p.k, batch, rows_k, p.heads_kv, p.dim_qk), element);
  t.v = buffer(span_of(p.v, batch, rows_k, p.heads_kv, p.dim_v), element);
  t.o = buffer(span_of(p.o, batch, rows_q, p.heads_q, p.dim_v), element);
  if (p.has(ATTUNE_LSE)) t.lse = buffer(span_of(p.lse, batch, rows_q, p.heads_q, 1), sizeof(float));
  if (p.has(ATTUNE_SINK)) t.sink = Buffer(p.heads_q, sizeof(float), shift);
  if (p.has(ATTUNE_BIAS)) t.bias = buffer(span_of(p.bias, p), bytes_of(p.bias_dtype));
  if (p.has(ATTUNE_MASK)) t.mask = buffer(span_of(p.mask, p), 1);
  if (p.packed()) {
    t.cu_seqlens_q = Buffer(p.batch + 1, sizeof(int32_t), shift);
    t.cu_seqlens_k = Buffer(p.batch + 1, sizeof(int32_t), shift);
  }
  if (p.has(ATTUNE_USED_Q)) t.used_q = Buffer(p.batch, sizeof(int32_t), shift);
  if (p.has(ATTUNE_USED_K)) t.used_k = Buffer(p.batch, sizeof(int32_t), shift);
  return t;
}

attune_forward_args Tensors::input_args() const {
  attune_forward_args a{};
  a.struct_size = sizeof a;
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  if (sink.allocated()) a.sink = sink.as<float>();
  if (bias.allocated()) a.bias = bias.data();
  if (mask.allocated()) a.mask = mask.as<uint8_t>();
  if (cu_seqlens_q.allocated()) a.cu_seqlens_q = cu_seqlens_q.as<int32_t>();
  if (cu_seqlens_k.allocated()) a.cu_seqlens_k = cu_seqlens_k.as<int32_t>();
  if (used_q.allocated()) a.used_q = used_q.as<int32_t>();
  if (used_k.allocated()) a.used_k = used_k.as<int32_t>();
  return a;
}

attune_forward_args Tensors::args() {
  attune_forward_args a = input_args();
  a.o = o.data();
  if (lse.allocated()) a.lse = lse.as<float>();
  return a;
}

Sequence Tensors::sequence(int64_t batch) const { return sequence_of(problem, input_args(), batch); }

int64_t row_offset(const Problem& problem, const attune_strides& strides, int64_t batch, int64_t first_row, int64_t row,
                   int64_t head) {
  return (problem.packed() ? 0 : batch * strides.batch) + (first_row + row) * strides.row + head * strides.head;
}

std::string stray_writes(const Tensors& t) {
  const Problem& p = t.problem;
  std::vector<bool> owned_o(t.o.whole().size()), owned_lse(t.lse.whole().size());
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = t.sequence(b);
    for (int64_t head = 0; head < p.heads_q; ++head) {
      for (int64_t row = 0; row < s.stored_q; ++row) {
        own(owned_o, t.o, row_offset(p, p.o, b, s.first_row_q, row, head), p.dim_v, bytes_of(p.dtype));
        if (t.lse.allocated())
          own(owned_lse, t.lse, row_offset(p, p.lse, b, s.first_row_q, row, head), 1, sizeof(float));
      }
    }
  }
  std::string stray = first_stray(owned_o, t.o, "o");
  if (stray.empty() && t.lse.allocated()) stray = first_stray(owned_lse, t.lse, "lse");
  return stray;
}

}  // namespace attune::lab
