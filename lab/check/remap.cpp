#include "lab/check/remap.hpp"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

namespace attune::lab {
namespace {

std::vector<int64_t> count_up(int64_t count) {
  std::vector<int64_t> places(static_cast<size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  return places;
}

void copy_elements(const Buffer& from, int64_t from_element, Buffer& to, int64_t to_element, int64_t elements,
                   int64_t element_bytes) {
  std::memcpy(to.as<char>() + to_element * element_bytes, from.as<char>() + from_element * element_bytes,
              static_cast<size_t>(elements * element_bytes));
}

void copy_lengths(const Tensors& from, Tensors& to, const Remap& remap) {
  const auto batches = remap.batches.size();
  if (to.problem.packed()) {
    const auto copy = [&](const Buffer& source, Buffer& target) {
      const auto* old_ends = source.as<int32_t>();
      auto* ends = target.as<int32_t>();
      ends[0] = old_ends[0];
      for (size_t b = 0; b < batches; ++b)
        ends[b + 1] = ends[b] + old_ends[remap.batches[b] + 1] - old_ends[remap.batches[b]];
    };
    copy(from[Operand::cu_seqlens_q], to[Operand::cu_seqlens_q]);
    copy(from[Operand::cu_seqlens_k], to[Operand::cu_seqlens_k]);
  }
  for (size_t b = 0; b < batches; ++b) {
    if (to[Operand::used_q].allocated())
      to[Operand::used_q].as<int32_t>()[b] = from[Operand::used_q].as<int32_t>()[remap.batches[b]];
    if (to[Operand::used_k].allocated())
      to[Operand::used_k].as<int32_t>()[b] = from[Operand::used_k].as<int32_t>()[remap.batches[b]];
  }
}

// The rows of every input that has them, by queries or by keys.
void copy_rows(const Tensors& from, Tensors& to, const Remap& remap, int64_t b, int64_t old_b) {
  const Problem &p = from.problem, &q = to.problem;
  const Sequence old_s = from.sequence(old_b), s = to.sequence(b);
  for (const OperandRow& operand : operand_rows()) {
    if (operand.form != Form::rows || operand.per_part || is_written(q, operand)) continue;
    if (!to[operand.operand].allocated() || !from[operand.operand].allocated()) continue;
    const bool of_keys = operand.seq == &Problem::seq_k;
    const std::vector<int64_t>& heads = of_keys ? remap.heads_kv : remap.heads_q;
    for (size_t h = 0; h < heads.size(); ++h)
      for (int64_t row = 0; row < (of_keys ? s.seq_k : s.seq_q); ++row) {
        const int64_t old_row = of_keys ? remap.keys[static_cast<size_t>(row)] : row;
        copy_elements(
            from[operand.operand],
            row_offset(p, p.*operand.strides, old_b, of_keys ? old_s.first_row_k : old_s.first_row_q, old_row,
                       heads[h]),
            to[operand.operand],
            row_offset(q, q.*operand.strides, b, of_keys ? s.first_row_k : s.first_row_q, row, static_cast<int64_t>(h)),
            row_extents(q, operand).dim, element_bytes(q, operand));
      }
  }
}

// Broadcast dimensions have stride 0 on both sides, so they are written several times with the same value.
void copy_scores(const Buffer& from, const attune_score_strides& old_strides, Buffer& to,
                 const attune_score_strides& strides, int64_t element_bytes, int64_t queries, const Remap& remap) {
  for (size_t b = 0; b < remap.batches.size(); ++b)
    for (size_t h = 0; h < remap.heads_q.size(); ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (size_t j = 0; j < remap.keys.size(); ++j) {
          const int64_t source = remap.batches[b] * old_strides.batch + remap.heads_q[h] * old_strides.head +
                                 i * old_strides.query + remap.keys[j] * old_strides.key;
          const int64_t target = static_cast<int64_t>(b) * strides.batch + static_cast<int64_t>(h) * strides.head +
                                 i * strides.query + static_cast<int64_t>(j) * strides.key;
          copy_elements(from, source, to, target, 1, element_bytes);
        }
}

}  // namespace

Remap identity_remap(const Problem& problem) {
  return {count_up(problem.batch), count_up(problem.heads_q), count_up(problem.heads_kv), count_up(problem.seq_k)};
}

Tensors remapped(const Tensors& original, const Problem& target, Storage storage, const Remap& remap) {
  Tensors copy = allocate(target, storage);
  copy_lengths(original, copy, remap);
  for (size_t b = 0; b < remap.batches.size(); ++b) {
    copy_rows(original, copy, remap, static_cast<int64_t>(b), remap.batches[b]);
  }
  const Problem &p = original.problem, &q = copy.problem;
  for (const OperandRow& row : operand_rows()) {
    const Buffer& from = original[row.operand];
    Buffer& to = copy[row.operand];
    if (!from.allocated() || !to.allocated()) continue;
    const int64_t bytes = element_bytes(p, row);
    if (row.form == Form::scores)
      copy_scores(from, p.*row.score_strides, to, q.*row.score_strides, bytes, p.seq_q, remap);
    if (row.form == Form::heads)
      for (size_t h = 0; h < remap.heads_q.size(); ++h)
        copy_elements(from, remap.heads_q[h], to, static_cast<int64_t>(h), 1, bytes);
  }
  return copy;
}

namespace {

// The row of the original that a row of the copy was taken from.
RowId origin_of(const RowSpace& space, const Problem& p, Operand output, const RowId& id, const Remap& remap) {
  RowId origin = id;
  if (space.batches > 1) origin.batch = remap.batches[static_cast<size_t>(id.batch)];
  if (space.heads > 1)
    origin.head =
        (row_of(output).heads == &Problem::heads_kv ? remap.heads_kv : remap.heads_q)[static_cast<size_t>(id.head)];
  if (row_of(output).seq == &Problem::seq_k && id.row < p.seq_k) origin.row = remap.keys[static_cast<size_t>(id.row)];
  return origin;
}

std::string first_difference(const Tensors& original, const Tensors& copy, const Remap& remap,
                             const OperandRow& output) {
  const auto bytes = static_cast<int64_t>(element_bytes(copy.problem, output));
  const RowSpace space = row_space(copy.problem, output.operand);
  for (int64_t b = 0; b < space.batches; ++b)
    for (int64_t head = 0; head < space.heads; ++head)
      for (int64_t row = 0; row < rows_in(copy, output.operand, b); ++row) {
        const RowId id{b, head, row};
        const RowId origin = origin_of(space, copy.problem, output.operand, id, remap);
        const auto at = [&](const Tensors& t, const RowId& of, int64_t c) {
          return t[output.operand].as<char>() + bytes * element_offset(t, output.operand, of, c);
        };
        // Rows of most outputs are contiguous; those of a bias' gradient need not be.
        const int64_t pieces = output.form == Form::scores ? space.dim : 1;
        const auto piece_bytes = static_cast<size_t>(bytes * space.dim / pieces);
        for (int64_t c = 0; c < pieces; ++c)
          if (std::memcmp(at(original, origin, c), at(copy, id, c), piece_bytes) != 0)
            return fmt::format("{} differs in batch {}, head {}, row {}", output.name, b, head, row);
      }
  return {};
}

}  // namespace

std::string first_difference(const Tensors& original, const Tensors& copy, const Remap& remap) {
  for (const OperandRow& row : operand_rows()) {
    if (!is_written(copy.problem, row)) continue;
    const std::string difference = first_difference(original, copy, remap, row);
    if (!difference.empty()) return difference;
  }
  return {};
}

}  // namespace attune::lab
