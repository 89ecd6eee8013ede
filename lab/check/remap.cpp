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

void copy_queries(const Tensors& from, Tensors& to, const Remap& remap, int64_t b, int64_t old_b) {
  const Problem &p = from.problem, &q = to.problem;
  const Sequence old_s = from.sequence(old_b), s = to.sequence(b);
  for (size_t h = 0; h < remap.heads_q.size(); ++h)
    for (int64_t row = 0; row < s.seq_q; ++row)
      copy_elements(from[Operand::q], row_offset(p, p.q, old_b, old_s.first_row_q, row, remap.heads_q[h]),
                    to[Operand::q], row_offset(q, q.q, b, s.first_row_q, row, static_cast<int64_t>(h)), p.dim_qk,
                    bytes_of(p.dtype));
}

void copy_keys(const Tensors& from, Tensors& to, const Remap& remap, int64_t b, int64_t old_b) {
  const Problem &p = from.problem, &q = to.problem;
  const Sequence old_s = from.sequence(old_b), s = to.sequence(b);
  for (size_t h = 0; h < remap.heads_kv.size(); ++h) {
    const auto head = static_cast<int64_t>(h);
    for (int64_t j = 0; j < s.seq_k; ++j) {
      const int64_t old_j = remap.keys[static_cast<size_t>(j)];
      copy_elements(from[Operand::k], row_offset(p, p.k, old_b, old_s.first_row_k, old_j, remap.heads_kv[h]),
                    to[Operand::k], row_offset(q, q.k, b, s.first_row_k, j, head), p.dim_qk, bytes_of(p.dtype));
      copy_elements(from[Operand::v], row_offset(p, p.v, old_b, old_s.first_row_k, old_j, remap.heads_kv[h]),
                    to[Operand::v], row_offset(q, q.v, b, s.first_row_k, j, head), p.dim_v, bytes_of(p.dtype));
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
    copy_queries(original, copy, remap, static_cast<int64_t>(b), remap.batches[b]);
    copy_keys(original, copy, remap, static_cast<int64_t>(b), remap.batches[b]);
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

std::string first_difference(const Tensors& original, const Tensors& copy, const Remap& remap) {
  const Problem &p = original.problem, &q = copy.problem;
  const auto row_bytes = static_cast<size_t>(p.dim_v * bytes_of(p.dtype));
  for (size_t b = 0; b < remap.batches.size(); ++b) {
    const auto batch = static_cast<int64_t>(b);
    const Sequence old_s = original.sequence(remap.batches[b]), s = copy.sequence(batch);
    for (size_t h = 0; h < remap.heads_q.size(); ++h) {
      const auto head = static_cast<int64_t>(h);
      for (int64_t row = 0; row < s.stored_q; ++row) {
        const auto at = [&](const Buffer& buffer, const Problem& of, const attune_strides& strides, bool old,
                            int64_t bytes) {
          return buffer.as<char>() +
                 bytes * (old ? row_offset(of, strides, remap.batches[b], old_s.first_row_q, row, remap.heads_q[h])
                              : row_offset(of, strides, batch, s.first_row_q, row, head));
        };
        const bool same_o = std::memcmp(at(original[Operand::o], p, p.o, true, bytes_of(p.dtype)),
                                        at(copy[Operand::o], q, q.o, false, bytes_of(p.dtype)), row_bytes) == 0;
        const bool same_lse = !p.has(ATTUNE_LSE) || std::memcmp(at(original[Operand::lse], p, p.lse, true, 4),
                                                                at(copy[Operand::lse], q, q.lse, false, 4), 4) == 0;
        if (!same_o || !same_lse)
          return fmt::format("{} differs in batch {}, head {}, row {}", same_o ? "lse" : "o", batch, head, row);
      }
    }
  }
  return {};
}

}  // namespace attune::lab
