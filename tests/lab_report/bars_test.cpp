// The bars: that the file says what was set out to reach, and that a table of rows is judged by it.
#include "lab/report/bars.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/sets.hpp"
#include "records.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const Bar& bar_named(std::string_view name) {
  for (const Bar& bar : bars())
    if (bar.name == name) return bar;
  ADD_FAILURE() << "no bar " << name;
  return bars().front();
}

// All problems of a bar, `speedup` times as fast as cuDNN, which fa3 trails.
std::vector<SpeedRow> rows_of(const Bar& bar, double speedup) {
  std::vector<SpeedResult> results;
  for (const std::string& problem : bar.problems()) {
    results.push_back(steady_result(problem, {{"attune", 1e-4}, {"cudnn", 1e-4 * speedup}, {"flash", 2e-4 * speedup}}));
    results.back().recorded["fa3"] = {0.9, 0.89, 0.91};
  }
  return speed_rows(record_of(results));
}

BarResult judged(const std::vector<SpeedRow>& rows, const Bar& bar) { return compare_with_bars(rows, {bar}).at(0); }

TEST(Bars, EveryProblemOfTheSetsWithBarsHasOne) {
  for (const char* set : {"prefill", "latency"}) {
    std::map<std::string, int> covered;
    for (const Bar& bar : bars())
      if (!bar.tensor_share)
        for (const std::string& problem : bar.problems()) ++covered[problem];
    for (const std::string& problem : find_set(set).problems) EXPECT_EQ(covered[problem], 1) << problem;
  }
}

TEST(Bars, SayWhatWasSetOut) {
  const auto expect = [](const char* name, size_t problems, double mean, double floor, double stretch) {
    const Bar& bar = bar_named(name);
    EXPECT_EQ(bar.problems().size(), problems) << name;
    EXPECT_EQ(bar.mean.value_or(0), mean) << name;
    EXPECT_EQ(bar.floor.value_or(0), floor) << name;
    EXPECT_EQ(bar.stretch.value_or(0), stretch) << name;
  };
  expect("D=128, S >= 2048", 8, 1.03, 0.99, 1.08);
  expect("D=64, S >= 2048", 8, 1.12, 1.03, 1.25);
  expect("D=256, S >= 2048", 8, 1.00, 0.97, 1.05);
  expect("D=64, S = 512 and 1024", 4, 1.20, 1.05, 1.35);
  expect("D=128, S = 512 and 1024", 4, 1.12, 1.03, 1.20);
  expect("D=256, S = 512 and 1024", 4, 1.05, 0.99, 1.12);
  expect("h100, f16", 2, 1.12, 0, 1.30);
  expect("llama7b, bf16", 1, 1.05, 0, 1.15);
  expect("1,8,512,64", 2, 0, 1.8, 2.4);
  expect("1,8,128,64", 2, 0, 1.5, 1.9);
  expect("1,8,1024,64", 2, 0, 1.6, 2.2);
  expect("1,8,2048,64 full", 1, 0, 1.2, 1.4);
  expect("1,8,2048,64 causal", 1, 0, 1.5, 2.0);
  expect("2,8,512,64", 2, 0, 1.6, 2.2);
  expect("4,16,512,64", 2, 0, 1.2, 1.5);
  expect("1,16,512,128", 2, 0, 1.6, 2.0);
  expect("1,32,512,128", 2, 0, 1.25, 1.5);
  EXPECT_EQ(bar_named("tensor cores, B=4 H=16 S=4096 D=128 full").tensor_share, 0.84);
  expect("models, all", 46, 1.25, 1, 1.4);
  expect("models, head dims 80 and 96, causal 4096", 2, 1.25, 1.1, 1.35);
  expect("models, decoding", 7, 1.05, 1, 1.2);
  expect("models, padding", 3, 1.8, 0, 2.5);
  expect("models, boolean mask of every row", 1, 1.4, 0, 1.7);
  expect("models, bias of every head", 1, 1.35, 0, 1.6);
  expect("models, bias of every score", 1, 1.35, 0, 1.6);
  expect("models, bias per key and head", 1, 2, 0, 3);
  expect("models, windows of 49 patches", 1, 0, 1.1, 1.5);
  expect("models, triangles", 1, 0, 1.1, 1.5);
  EXPECT_EQ(bars().size(), 28u);
}

TEST(Bars, AgainstAnyNeedOnePeerAtEveryRow) {
  const Bar& bar = bar_named("models, decoding");
  std::vector<SpeedResult> results;
  for (const std::string& problem : bar.problems()) {
    const char* const peer = results.empty() ? "flex" : "cudnn";
    results.push_back(steady_result(problem, {{"attune", 1e-5}, {peer, 1.2e-5}}));
  }
  EXPECT_EQ(judged(speed_rows(record_of(results)), bar).state, BarState::met);
  results[0] = steady_result(results[0].problem, {{"attune", 1e-5}});
  const std::vector<SpeedRow> rows = speed_rows(record_of(results));
  const BarResult result = judged(rows, bar);
  EXPECT_EQ(result.state, BarState::incomplete);
  EXPECT_EQ(result.why, "every peer is missing at '" + results[0].problem + "'");
}

TEST(Bars, AreMetOrMissedByEstimateAndLowerEnd) {
  const Bar& bar = bar_named("D=64, S >= 2048");
  EXPECT_EQ(judged(rows_of(bar, 1.13), bar).state, BarState::met);
  const std::vector<SpeedRow> slower = rows_of(bar, 1.11);
  const BarResult missed = judged(slower, bar);
  EXPECT_EQ(missed.state, BarState::missed);
  EXPECT_THAT(missed.why, HasSubstr("does not reach 1.12"));
  EXPECT_NEAR(missed.mean->estimate, 1.11, 1e-6);
}

TEST(Bars, OneRowBelowTheFloorIsEnoughToMiss) {
  const Bar& bar = bar_named("D=64, S >= 2048");
  std::vector<SpeedRow> rows = rows_of(bar, 1.3);
  rows[3] = rows_of(bar, 1.02)[3];
  const BarResult result = judged(rows, bar);
  EXPECT_EQ(result.state, BarState::missed);
  EXPECT_EQ(result.lowest, &rows[3]);
  EXPECT_THAT(result.why, HasSubstr("1 of 8 rows below the floor of 1.03"));
  EXPECT_GT(result.mean->estimate, 1.12);
}

TEST(Bars, AMissingProblemOrPeerIsNoSuccess) {
  const Bar& bar = bar_named("D=64, S >= 2048");
  std::vector<SpeedRow> rows = rows_of(bar, 2);
  rows.pop_back();
  EXPECT_EQ(judged(rows, bar).state, BarState::incomplete);
  EXPECT_THAT(judged(rows, bar).why, HasSubstr("was not measured"));

  rows = rows_of(bar, 2);
  std::erase_if(rows[2].peers, [](const Against& peer) { return peer.peer == "fa3"; });
  EXPECT_EQ(judged(rows, bar).state, BarState::incomplete);
  EXPECT_THAT(judged(rows, bar).why, HasSubstr("fa3 is missing at"));
}

TEST(Bars, ThatSpeakOfNoRowAreLeftOut) {
  const Bar& bar = bar_named("llama7b, bf16");
  const std::vector<SpeedRow> rows = rows_of(bar, 1);
  EXPECT_EQ(compare_with_bars(rows, bars()).size(), 1u);
  EXPECT_TRUE(compare_with_bars({}, bars()).empty());
}

TEST(Bars, TensorShareCountsCycles) {
  const Bar& bar = bar_named("tensor cores, B=4 H=16 S=4096 D=128 full");
  const double flops = useful_flops(parse_problem(bar.problems().at(0)));
  const auto share_at = [&](double seconds) {
    SpeedResult result = steady_result(bar.problems()[0], {{"attune", seconds}, {"cudnn", seconds}}, 1.6e9);
    result.flops = flops;
    const std::vector<SpeedRow> rows = speed_rows(record_of({result}));
    const BarResult judgement = judged(rows, bar);
    return std::pair(judgement.mean->estimate, judgement.state);
  };
  const double all_of_it = flops / (1.6e9 * 132 * 4096);
  EXPECT_NEAR(share_at(all_of_it).first, 1, 1e-4);
  EXPECT_EQ(share_at(all_of_it / 0.85).second, BarState::met);
  EXPECT_EQ(share_at(all_of_it / 0.83).second, BarState::missed);
}

TEST(Bars, AFileThatIsWrongIsRefused) {
  const auto refused = [](const char* text, const char* why) {
    EXPECT_THAT([&] { bars_from(text); }, ThrowsMessage<Error>(HasSubstr(why))) << text;
  };
  refused("bar = 3", "[[bar]] entries");
  refused("[[bar]]\nname = 'a'", "set is missing");
  refused("[[bar]]\nname = 'a'\nset = 'grid'\nagainst = ['cudnn']", "mean or floor is needed");
  refused("[[bar]]\nname = 'a'\nset = 'grid'\nmean = 1.0", "against names nobody");
  refused("[[bar]]\nname = 'a'\nset = 'grid'\nmean = 'high'\nagainst = ['cudnn']", "mean is not a number");
  refused("[[bar]]\nname = 'a'\nset = 'grid'\nmena = 1.0", "mena is not known");
  refused("[[bar]]\nname = 'a'\nset = 'grid'\nwords = ['d77']\nmean = 1.0\nagainst = ['cudnn']", "leave no problem");
}

}  // namespace
}  // namespace attune::lab
