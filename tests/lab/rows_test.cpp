// Which rows are compared, and what a plan of checks holds.
#include "lab/check/rows.hpp"

#include <algorithm>
#include <set>

#include "lab/check/plan.hpp"
#include "tests/lab/lab_fixture.hpp"

namespace attune::lab {
namespace {

class Rows : public Lab {};

TEST_F(Rows, AllWhileAffordable) {
  const Tensors t = inputs("fwd b3 h2/1 q10 k10 d8 f16 used-q");
  const RowChoice choice = choose_rows(t, {}, 1);
  EXPECT_EQ(choice.rows.size(), 60u) << "rows not in use are rows too";
  EXPECT_FALSE(choice.sampled());
  EXPECT_TRUE(std::ranges::is_sorted(choice.rows));
}

TEST_F(Rows, PackedCountsTheRowsOfItsSequences) {
  const Tensors t = inputs("fwd b4 h3/1 q10 k10 d8 f16 var");
  int64_t rows = 0;
  for (int64_t b = 0; b < 4; ++b) rows += t.sequence(b).stored_q;
  EXPECT_EQ(static_cast<int64_t>(choose_rows(t, {}, 1).rows.size()), 3 * rows);
}

TEST_F(Rows, SampleHasEndsAndTileEdges) {
  const Tensors t = inputs("fwd b2 h16/4 q1000 k8 d8 f16");
  const RowChoice choice = choose_rows(t, {0, 512}, 5);
  EXPECT_TRUE(choice.sampled());
  EXPECT_EQ(choice.total, 32000);
  EXPECT_GE(choice.rows.size(), 400u);
  EXPECT_LE(choice.rows.size(), 512u);
  EXPECT_TRUE(std::ranges::is_sorted(choice.rows));
  EXPECT_EQ(choice.rows.front(), (RowId{0, 0, 0}));
  EXPECT_EQ(choice.rows.back(), (RowId{1, 15, 999}));
  std::set<int64_t> rows;
  for (const RowId& id : choice.rows) rows.insert(id.row);
  const auto beside_an_edge = std::ranges::count_if(rows, [](int64_t row) { return row % 64 == 0 || row % 64 == 63; });
  EXPECT_GE(beside_an_edge, 16);
  EXPECT_NE(choose_rows(t, {0, 512}, 6).rows, choice.rows) << "another seed, other rows";
}

TEST_F(Rows, IdealMayHaveFewer) {
  const Tensors t = inputs("fwd b1 h4/4 q400 k8 d8 f16");
  const RowChoice all = choose_rows(t, {}, 1);
  EXPECT_EQ(choose_ideal_rows(t, all, {}, 1).size(), 1600u);
  const auto some = choose_ideal_rows(t, all, {0x1p33, 64, 0}, 1);
  EXPECT_EQ(some.size(), 64u);
  EXPECT_TRUE(std::ranges::includes(all.rows, some));
}

TEST_F(Rows, PlanCoversEverySetInputAndOracle) {
  std::set<std::string> groups;
  std::set<InputKind> kinds;
  std::set<Oracle> oracles;
  std::set<Storage> storages;
  size_t reduced = 0;
  int64_t most_keys = 0;
  for (const PlannedCheck& check : plan_checks(*executor_, {}, 1)) {
    groups.insert(check.group);
    kinds.insert(check.what.input);
    if (check.what.oracle) oracles.insert(*check.what.oracle);
    storages.insert(check.what.storage);
    const Problem p = parse_problem(check.what.problem);
    EXPECT_LE(useful_flops(p), PlanBudget{}.flops) << check.what.problem;
    most_keys = std::max(most_keys, p.seq_k);
    if (check.reduced_from.empty()) continue;
    ++reduced;
    EXPECT_EQ(parse_problem(check.reduced_from).seq_k, p.seq_k);
  }
  EXPECT_EQ(kinds.size(), all_input_kinds.size());
  EXPECT_EQ(oracles.size(), all_oracles.size());
  EXPECT_EQ(storages.size(), all_storages.size());
  EXPECT_GT(most_keys, 32896);
  EXPECT_GT(reduced, 30u);
  for (const char* name : {"features", "edges", "mission", "reports7", "reports5", "llama7b", "h100", "small", "grid"})
    EXPECT_TRUE(groups.contains(name)) << name;
}

}  // namespace
}  // namespace attune::lab
