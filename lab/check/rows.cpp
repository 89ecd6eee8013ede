#include "lab/check/rows.hpp"

#include <algorithm>
#include <set>

#include "lab/check/inputs.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr int64_t sampled_heads = 16;
constexpr int64_t tile_rows = 64;

std::vector<RowId> every_row(const Tensors& t) {
  std::vector<RowId> rows;
  for (int64_t b = 0; b < t.problem.batch; ++b) {
    const int64_t stored = t.sequence(b).stored_q;
    for (int64_t head = 0; head < t.problem.heads_q; ++head)
      for (int64_t row = 0; row < stored; ++row) rows.push_back({b, head, row});
  }
  return rows;
}

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

RowChoice choose_rows(const Tensors& tensors, const RowPolicy& policy, uint64_t seed) {
  const Problem& p = tensors.problem;
  RowChoice choice;
  for (int64_t b = 0; b < p.batch; ++b) choice.total += tensors.sequence(b).stored_q * p.heads_q;
  if (useful_flops(p) <= policy.all_rows_flops || choice.total <= policy.sampled_rows) {
    choice.rows = every_row(tensors);
    return choice;
  }

  stats::Random random(derive_seed(seed, 0x726f7773));
  const int64_t places = p.batch * p.heads_q;
  std::set<int64_t> chosen{0, places - 1};
  while (static_cast<int64_t>(chosen.size()) < std::min(places, sampled_heads))
    chosen.insert(static_cast<int64_t>(random.below(static_cast<uint64_t>(places))));
  const int64_t per_head = std::max<int64_t>(policy.sampled_rows / static_cast<int64_t>(chosen.size()), 4);
  for (const int64_t place : chosen) {
    const int64_t b = place / p.heads_q;
    for (const int64_t row : some_rows(random, tensors.sequence(b).stored_q, per_head))
      choice.rows.push_back({b, place % p.heads_q, row});
  }
  return choice;
}

std::vector<RowId> choose_ideal_rows(const Tensors& tensors, const RowChoice& choice, const RowPolicy& policy,
                                     uint64_t seed) {
  if (choice.sampled() || useful_flops(tensors.problem) <= policy.all_ideal_flops) return choice.rows;
  return choose_rows(tensors, {0, policy.sampled_rows, 0}, seed).rows;
}

}  // namespace attune::lab
