// The gradients of the CPU's kernel: every feature, hostile input, storage and oracle, and random problems.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/error.hpp"
#include "lab/check/method.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/check/report.hpp"
#include "lab/sets.hpp"
#include "tests/support/budget.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

// Under sanitizers every fourth problem: the loops are the same for all.
std::vector<std::string> problems() {
  const std::vector<std::string> all = find_set("backward").problems;
  if (!test::small_budget()) return all;
  std::vector<std::string> some;
  for (size_t i = 0; i < all.size(); i += 4) some.push_back(all[i]);
  return some;
}

class Backward : public testing::Test {
 protected:
  void expect_good(const Case& c) {
    for (const Outcome& outcome : checker_.check(c, executor_->kernels(backward_operation)))
      EXPECT_TRUE(outcome.ok()) << failure_text(outcome, c);
  }

  cpu::Threads threads_{attune_options{}};
  std::unique_ptr<Executor> executor_ = make_cpu_executor();
  std::unique_ptr<ReferenceSource> reference_ = make_cpu_reference(threads_);
  Checker checker_{*executor_, *reference_, threads_};
};

TEST_F(Backward, PassesWithEveryInput) {
  for (const std::string& problem : problems())
    for (const InputKind kind : all_input_kinds) expect_good({problem, "", kind, 1, Storage::dense, std::nullopt});
}

TEST_F(Backward, PassesInEveryStorage) {
  for (const std::string& problem : problems())
    for (const Storage storage : all_storages) expect_good({problem, "", InputKind::normal, 2, storage, std::nullopt});
}

TEST_F(Backward, OraclesAgree) {
  int consulted = 0;
  for (const std::string& problem : find_set("backward").problems)
    for (const Oracle oracle : check_method_of(parse_problem(problem)).oracles) {
      const Outcome outcome = checker_.check({problem, "", InputKind::normal, 3, Storage::dense, oracle});
      EXPECT_TRUE(outcome.ok()) << failure_text(outcome, outcome.of);
      if (outcome.not_applicable.empty()) ++consulted;
    }
  EXPECT_GT(consulted, 120);
}

TEST_F(Backward, PassesRandomProblems) {
  const uint64_t seed = 100, count = test::small_budget() ? 20 : 3000;
  for (uint64_t i = 0; i < count; ++i) expect_good(random_backward_case(seed + i));
}

TEST_F(Backward, EveryOutputIsJudged) {
  const Outcome outcome = checker_.check({"bwd b1 h2/1 q20 k30 d16 f16 sink dsink bias=1hqk dbias", "",
                                          InputKind::normal, 1, Storage::dense, std::nullopt});
  std::vector<std::string_view> names;
  for (const Judgement& judgement : outcome.outputs) {
    names.push_back(row_of(judgement.output).name);
    EXPECT_GT(judgement.rel_rms, 0) << names.back();
  }
  EXPECT_THAT(names, testing::ElementsAre("dq", "dk", "dv", "dsink", "dbias"));
  EXPECT_EQ(outcome.outputs[1].total_rows, 30) << "rows of keys, of one KV head";
  EXPECT_EQ(outcome.outputs[3].total_rows, 2) << "heads";
  EXPECT_THAT(line_of(outcome), HasSubstr("dbias rel_rms"));
  EXPECT_EQ(to_json(outcome)["outputs"].size(), 5u);
}

// The bounds were calibrated with the Ideal of the forward pass; that of gradients is not worse.
TEST_F(Backward, IdealKeepsAwayFromTheBounds) {
  std::map<Dtype, double> worst;
  for (const std::string& text : problems())
    for (const InputKind kind : all_input_kinds) {
      const Problem problem = parse_problem(text);
      const Tensors t = make_inputs(problem, kind, 4, Storage::dense, threads_);
      const CheckMethod& method = check_method_of(problem);
      std::vector<RowChoice> choices;
      for (const Operand output : method.outputs(problem)) choices.push_back(choose_rows(t, {}, 1, output));
      const auto truth = method.reference_of(t, choices, threads_);
      const auto ideal = method.ideal_of(t, choices, threads_);
      for (size_t i = 0; i < choices.size(); ++i) {
        const double units = max_ulp_of_ideal(t, choices[i], truth[i], ideal[i]);
        if (std::isfinite(units)) worst[problem.dtype] = std::max(worst[problem.dtype], units);
      }
    }
  for (const auto& [dtype, units] : worst) EXPECT_LT(units, frozen_accuracy().max_ulp(dtype) / 1.5) << name_of(dtype);
}

// Where many rows carry the error, Ideal's is what its model expects.
TEST_F(Backward, IdealErrsAsItsModelExpects) {
  int compared = 0;
  for (const std::string& text : problems())
    for (const InputKind kind : {InputKind::normal, InputKind::heavy_tailed}) {
      const Problem problem = parse_problem(text);
      const Tensors t = make_inputs(problem, kind, 6, Storage::dense, threads_);
      const CheckMethod& method = check_method_of(problem);
      std::vector<RowChoice> choices;
      for (const Operand output : method.outputs(problem)) choices.push_back(choose_rows(t, {}, 1, output));
      const auto truth = method.reference_of(t, choices, threads_);
      const auto ideal = method.ideal_of(t, choices, threads_);
      for (size_t i = 0; i < choices.size(); ++i) {
        if (effective_rows(ideal[i]) < 100) continue;
        double energy = 0, expected = 0;
        for (size_t at = 0; at < truth[i].o.size(); ++at)
          energy += std::pow(static_cast<double>(ideal[i].o[at]) - truth[i].o[at], 2);
        for (const Ideal::Row& row : ideal[i].rows) expected += row.expected_energy;
        EXPECT_GT(energy, 0.3 * expected) << text << ", " << row_of(choices[i].output).name << ", " << name_of(kind);
        EXPECT_LT(energy, 1.6 * expected) << text << ", " << row_of(choices[i].output).name << ", " << name_of(kind);
        ++compared;
      }
    }
  EXPECT_GE(compared, test::small_budget() ? 4 : 12);
}

TEST(BackwardSet, HasEveryFeature) {
  uint32_t features = 0;
  std::set<Causal> causal;
  std::set<Dtype> dtypes;
  bool group = false, different_dims = false, softcap = false;
  for (const std::string& text : find_set("backward").problems) {
    const Problem p = parse_problem(text);
    features |= p.features;
    causal.insert(p.causal);
    dtypes.insert(p.dtype);
    group |= p.group() > 1;
    different_dims |= p.dim_qk != p.dim_v;
    softcap |= p.softcap != 0;
  }
  constexpr uint32_t all = ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SINK | ATTUNE_BIAS | ATTUNE_MASK | ATTUNE_PACKED |
                           ATTUNE_USED_Q | ATTUNE_USED_K | ATTUNE_LSE | ATTUNE_DLSE | ATTUNE_DSINK | ATTUNE_DBIAS |
                           ATTUNE_ANY_ORDER;
  EXPECT_EQ(features & all, all);
  EXPECT_EQ(causal.size(), 3u);
  EXPECT_EQ(dtypes.size(), 3u);
  EXPECT_TRUE(group && different_dims && softcap);
}

TEST_F(Backward, LargeProblemsAreSampled) {
  Checker sampled(*executor_, *reference_, threads_, {0, 40, 0});
  const Outcome outcome =
      sampled.check({"bwd b1 h2/1 q200 k300 d16 bf16", "", InputKind::normal, 1, Storage::dense, std::nullopt});
  EXPECT_TRUE(outcome.ok()) << failure_text(outcome, outcome.of);
  for (const Judgement& judgement : outcome.outputs) {
    EXPECT_LT(judgement.rows, judgement.total_rows);
    EXPECT_GE(judgement.rows, 36);
  }
}

// As where a device affords the reference of every row and the CPU Ideal's of some: the others cannot be judged.
TEST_F(Backward, IsJudgedWhereIdealIs) {
  Checker few(*executor_, *reference_, threads_, {.all_rows_flops = 0x1p40, .sampled_rows = 64, .all_ideal_flops = 0});
  for (const char* problem : {"bwd b2 h4/2 q200 k333 d64 f32", "bwd b2 h4/2 q200 k333 d64 bf16 scale-0.3"}) {
    const Outcome outcome = few.check({problem, "", InputKind::rising_max, 1, Storage::dense, std::nullopt});
    EXPECT_TRUE(outcome.ok()) << failure_text(outcome, outcome.of);
    for (const Judgement& judgement : outcome.outputs) EXPECT_LT(judgement.rows, judgement.total_rows);
  }
}

TEST(BackwardText, PrintsAndParses) {
  for (const char* text :
       {"bwd b1 h8/8 q512 k512 d64 f16 causal-br",
        "bwd b2 h4/2 q64 k64 d64/32 bf16 w3,-1 cap20 sink bias=1hqk:f32 mask=b11k dlse dsink dbias var used-q",
        "bwd b1 h1/1 q8 k8 d8 f32 bhsd any-order"}) {
    EXPECT_EQ(to_string(parse_problem(text)), text);
    EXPECT_EQ(parse_problem(to_string(parse_problem(text))), parse_problem(text));
  }
  const auto error_of = [](const char* text) {
    try {
      parse_problem(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of("bwd b1 h1/1 q8 k8 d8 f32 nolse"), HasSubstr("'nolse'"));
  EXPECT_THAT(error_of("bwd b1 h1/1 q8 k8 d8 f32 dsink"), HasSubstr("only together with ATTUNE_SINK"));
  EXPECT_THAT(error_of("bwd b1 h1/1 q8 k8 d8 f32 dbias"), HasSubstr("only together with ATTUNE_BIAS"));
  EXPECT_THAT(error_of("fwd b1 h1/1 q8 k8 d8 f32 dlse"), HasSubstr("'dlse'"));
  EXPECT_THAT(error_of("fwd b1 h1/1 q8 k8 d8 f32 any-order"), HasSubstr("'any-order'"));
}

TEST(BackwardText, WorkIsTwoAndAHalfTimesThatOfTheForwardPass) {
  EXPECT_EQ(useful_flops(parse_problem("bwd b2 h4/2 q64 k64 d64/32 bf16 causal-br")),
            2.5 * useful_flops(parse_problem("fwd b2 h4/2 q64 k64 d64/32 bf16 causal-br")));
}

}  // namespace
}  // namespace attune::lab
