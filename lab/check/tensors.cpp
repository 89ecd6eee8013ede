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

Span span_of(const Problem& p, const OperandRow& row) {
  if (row.form == Form::rows) {
    const attune_strides& s = p.*row.strides;
    const auto [batch, rows, heads, dim] = row_extents(p, row);
    return span_of({{batch, s.batch}, {rows, s.row}, {heads, s.head}}, dim);
  }
  if (row.form == Form::scores) {
    const attune_score_strides& s = p.*row.score_strides;
    return span_of({{p.batch, s.batch}, {p.heads_q, s.head}, {p.seq_q, s.query}, {p.seq_k, s.key}}, 1);
  }
  return {contiguous_elements(p, row), 0};
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
  const int64_t gap = gap_of(storage);
  for (const OperandRow& row : operand_rows()) {
    if (!has_operand(p, row)) continue;
    if (row.strides != nullptr) {
      attune_strides& s = p.*row.strides;
      const auto [batch, rows, heads, dim] = row_extents(p, row);
      if (storage == Storage::reversed)
        reverse(s);
      else if (p.packed())
        spread<2>({Extent{rows, &s.row}, Extent{heads, &s.head}}, dim + gap, gap);
      else
        spread<3>({Extent{batch, &s.batch}, Extent{rows, &s.row}, Extent{heads, &s.head}}, dim + gap, gap);
    }
    if (row.score_strides != nullptr) {
      attune_score_strides& s = p.*row.score_strides;
      if (storage == Storage::reversed)
        reverse(s);
      else
        spread<4>(
            {Extent{p.batch, &s.batch}, Extent{p.heads_q, &s.head}, Extent{p.seq_q, &s.query}, Extent{p.seq_k, &s.key}},
            1 + gap, gap);
    }
  }
  return p;
}

Tensors allocate(const Problem& problem, Storage storage) {
  Tensors t;
  const Problem& p = t.problem = with_storage(problem, storage);
  const int64_t shift = storage == Storage::odd ? 1 : 0;
  for (const OperandRow& row : operand_rows()) {
    if (!has_operand(p, row)) continue;
    const Span span = span_of(p, row);
    t.parts(row.operand)
        .assign(row.per_part ? static_cast<size_t>(p.parts) : 1,
                Buffer(span.count, element_bytes(p, row), shift, span.first));
  }
  return t;
}

Tensors::Tensors() {
  for (std::vector<Buffer>& buffers : buffers_) buffers.resize(1);
}

Operands Tensors::pointers(bool with_outputs) const {
  Operands operands;
  for (const OperandRow& row : operand_rows()) {
    if (is_written(problem, row) && !with_outputs) continue;
    const std::vector<Buffer>& buffers = parts(row.operand);
    if (!buffers.front().allocated()) continue;
    if (!row.per_part) {
      operands.set(row.operand, buffers.front().data());
      continue;
    }
    std::vector<const void*>& list = part_pointers_[static_cast<size_t>(row.operand)];
    list.clear();
    for (const Buffer& buffer : buffers) list.push_back(buffer.data());
    operands.set(row.operand, list.data());
  }
  return operands;
}

Operands Tensors::operands() { return pointers(true); }
Operands Tensors::input_operands() const { return pointers(false); }

Sequence Tensors::sequence(int64_t batch) const {
  Operands lengths;
  for (const OperandRow& row : operand_rows())
    if (row.element == Element::i32) lengths.set(row.operand, (*this)[row.operand].data());
  return sequence_of(problem, lengths, batch);
}

Problem without_spare_rows(const Tensors& tensors) {
  Problem problem = tensors.problem;
  if (problem.packed()) {
    problem.total_q = tensors[Operand::cu_seqlens_q].as<int32_t>()[problem.batch];
    problem.total_k = tensors[Operand::cu_seqlens_k].as<int32_t>()[problem.batch];
  }
  return problem;
}

int64_t row_offset(const Problem& problem, const attune_strides& strides, int64_t batch, int64_t first_row, int64_t row,
                   int64_t head) {
  return (problem.packed() ? 0 : batch * strides.batch) + (first_row + row) * strides.row + head * strides.head;
}

void poison_outputs(Tensors& t) {
  for_each_buffer(t, [&](const OperandRow& row, size_t, Buffer& buffer) {
    if (is_written(t.problem, row)) buffer.poison();
  });
}

std::string stray_writes(const Tensors& t) {
  const Problem& p = t.problem;
  std::string stray;
  for_each_buffer(t, [&](const OperandRow& row, size_t, const Buffer& buffer) {
    if (!is_written(p, row) || !stray.empty()) return;
    std::vector<bool> owned(buffer.whole().size());
    const int64_t bytes = element_bytes(p, row);
    if (row.form == Form::heads) own(owned, buffer, 0, contiguous_elements(p, row), bytes);
    if (row.form == Form::scores) {
      const attune_score_strides& strides = p.*row.score_strides;
      for (int64_t b = 0; b < p.batch; ++b)
        for (int64_t head = 0; head < p.heads_q; ++head)
          for (int64_t i = 0; i < p.seq_q; ++i)
            for (int64_t j = 0; j < p.seq_k; ++j)
              own(owned, buffer, b * strides.batch + head * strides.head + i * strides.query + j * strides.key, 1,
                  bytes);
    }
    if (row.form == Form::rows) {
      const bool of_keys = row.seq == &Problem::seq_k;
      for (int64_t b = 0; b < p.batch; ++b) {
        const Sequence s = t.sequence(b);
        for (int64_t head = 0; head < p.*row.heads; ++head)
          for (int64_t i = 0; i < (of_keys ? s.stored_k : s.stored_q); ++i)
            own(owned, buffer, row_offset(p, p.*row.strides, b, of_keys ? s.first_row_k : s.first_row_q, i, head),
                row_extents(p, row).dim, bytes);
      }
    }
    stray = first_stray(owned, buffer, row.name);
  });
  return stray;
}

}  // namespace attune::lab
