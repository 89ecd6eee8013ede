#include "lab/check/rows.hpp"

#include <algorithm>
#include <set>

#include "lab/check/inputs.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr int64_t sampled_heads = 16;
constexpr int64_t tile_rows = 64;

std::vector<RowId> every_row(const Tensors& t, Operand output) {
  const RowSpace space = row_space(t.problem, output);
  std::vector<RowId> rows;
  for (int64_t b = 0; b < space.batches; ++b) {
    const int64_t stored = rows_in(t, output, b);
    for (int64_t head = 0; head < space.heads; ++head)
      for (int64_t row = 0; row < stored; ++row) rows.push_back({b, head, row});
  }
  return rows;
}

bool is_of_keys(const OperandRow& row) { return row.seq == &Problem::seq_k; }

// A broadcast dimension has one place.
int64_t places(int64_t extent, int64_t stride) { return stride == 0 ? std::min<int64_t>(extent, 1) : extent; }

// Up to `count` of the rows 0..stored-1: a half at tile edges, the rest anywhere.
std::set<int64_t> some_rows(stats::Random& random, int64_t stored, int64_t count) {
  if (stored <= count) count = stored;
  std::set<int64_t> rows;
  const auto add = [&](int64_t row) {
    if (row >= 0 && row < stored && static_cast<int64_t>(rows.size()) < count) rows.insert(row);
  };
  for (const int64_t row : {int64_t{0}, stored - 1, int64_t{1}, stored - 2}) add(row);
  const auto tiles = static_cast<uint64_t>(stored / tile_rows + 1);
  for (int64_t i = 0; i < count / 4; ++i) {
    const int64_t edge = static_cast<int64_t>(random.below(tiles)) * tile_rows;
    add(edge - 1);
    add(edge);
  }
  while (static_cast<int64_t>(rows.size()) < count)
    add(static_cast<int64_t>(random.below(static_cast<uint64_t>(stored))));
  return rows;
}

}  // namespace

RowSpace row_space(const Problem& p, Operand output) {
  const OperandRow& row = row_of(output);
  if (row.form == Form::heads) return {1, p.heads_q, 1};
  if (row.form == Form::scores) {
    const attune_score_strides& strides = p.*row.score_strides;
    return {places(p.batch, strides.batch), places(p.heads_q, strides.head), places(p.seq_k, strides.key)};
  }
  return {p.batch, p.*row.heads, row_extents(p, row).dim};
}

int64_t rows_in(const Tensors& t, Operand output, int64_t batch) {
  const OperandRow& row = row_of(output);
  if (row.form == Form::heads) return 1;
  if (!has_elements(t.problem, row)) return 0;
  if (row.form == Form::scores) return places(t.problem.seq_q, (t.problem.*row.score_strides).query);
  const Sequence s = t.sequence(batch);
  return is_of_keys(row) ? s.stored_k : s.stored_q;
}

int64_t element_offset(const Tensors& t, Operand output, const RowId& id, int64_t element) {
  const Problem& p = t.problem;
  const OperandRow& row = row_of(output);
  if (row.form == Form::heads) return id.head;
  if (row.form == Form::scores) {
    const attune_score_strides& s = p.*row.score_strides;
    return id.batch * s.batch + id.head * s.head + id.row * s.query + element * s.key;
  }
  const Sequence s = t.sequence(id.batch);
  return row_offset(p, p.*row.strides, id.batch, is_of_keys(row) ? s.first_row_k : s.first_row_q, id.row, id.head) +
         element;
}

Dtype dtype_of(const Problem& p, Operand output) {
  const Element element = row_of(output).element;
  return element == Element::f32 ? Dtype::f32 : element == Element::of_bias ? p.bias_dtype : p.dtype;
}

RowChoice choose_rows(const Tensors& tensors, const RowPolicy& policy, uint64_t seed, Operand output) {
  const RowSpace space = row_space(tensors.problem, output);
  RowChoice choice;
  choice.output = output;
  for (int64_t b = 0; b < space.batches; ++b) choice.total += rows_in(tensors, output, b) * space.heads;
  if (useful_flops(tensors.problem) <= policy.all_rows_flops || choice.total <= policy.sampled_rows) {
    choice.rows = every_row(tensors, output);
    return choice;
  }

  stats::Random random(derive_seed(seed, 0x726f7773));
  const int64_t heads = space.batches * space.heads;
  std::set<int64_t> chosen{0, heads - 1};
  while (static_cast<int64_t>(chosen.size()) < std::min(heads, sampled_heads))
    chosen.insert(static_cast<int64_t>(random.below(static_cast<uint64_t>(heads))));
  const int64_t per_head = std::max<int64_t>(policy.sampled_rows / static_cast<int64_t>(chosen.size()), 4);
  for (const int64_t place : chosen) {
    const int64_t b = place / space.heads;
    for (const int64_t row : some_rows(random, rows_in(tensors, output, b), per_head))
      choice.rows.push_back({b, place % space.heads, row});
  }
  return choice;
}

std::vector<RowId> choose_ideal_rows(const Tensors& tensors, const RowChoice& choice, const RowPolicy& policy,
                                     uint64_t seed) {
  if (choice.sampled() || useful_flops(tensors.problem) <= policy.all_ideal_flops) return choice.rows;
  return choose_rows(tensors, {0, policy.sampled_rows, 0}, seed, choice.output).rows;
}

}  // namespace attune::lab
