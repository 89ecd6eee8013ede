// The bars for CPUs: that the file says what was set out to reach, and how rows are judged by them.
#include "lab/report/cpu_bars.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Kind = CpuBar::Kind;

const CpuBar& bar_named(std::string_view name) {
  for (const CpuBar& bar : cpu_bars())
    if (bar.name == name) return bar;
  ADD_FAILURE() << "no bar " << name;
  return cpu_bars().front();
}

Measured about(double value) { return {value, {0.99 * value, 1.01 * value, 0.96}, value}; }

// All problems of a bar with one number of threads, at `share` of every ceiling.
std::vector<CpuRow> rows_of(const CpuBar& bar, int threads, double share, const char* kernel = "cpu/amx") {
  std::vector<CpuRow> rows;
  for (const std::string& problem : bar.problems()) {
    CpuRow& row = rows.emplace_back(CpuRow{problem, kernel, threads, 1e9, about(1e-3), {}, {}});
    for (const char* ceiling : {"amx", "fma", "read"}) row.shares[ceiling] = about(share);
  }
  return rows;
}

CpuBarResult judged(const std::vector<CpuRow>& rows, const CpuBar& bar) {
  return compare_with_cpu_bars(rows, {bar}).at(0);
}

TEST(CpuBars, SayWhatWasSetOut) {
  const auto expect = [](const char* name, size_t problems, Kind kind, double value, double stretch, int threads = 0) {
    const CpuBar& bar = bar_named(name);
    EXPECT_EQ(bar.problems().size(), problems) << name;
    EXPECT_EQ(bar.kind, kind) << name;
    EXPECT_EQ(bar.value, value) << name;
    EXPECT_EQ(bar.stretch.value_or(0), stretch) << name;
    EXPECT_EQ(bar.threads, threads) << name;
  };
  expect("bf16 D=128, N >= 1024", 2, Kind::share, 0.40, 0.55);
  expect("bf16 D=64, N >= 1024", 1, Kind::share, 0.30, 0.40);
  expect("bf16 causal, N = 2048 D=128", 1, Kind::share, 0.36, 0.48);
  expect("mission, bf16 full", 2, Kind::gflops, 1200, 1600, 2);
  expect("f16 D=128", 1, Kind::share, 0.13, 0.19);
  expect("float32 D=128", 1, Kind::share, 0.70, 0.80);
  expect("decoding bf16, groups up to 8", 3, Kind::share, 0.85, 0.95, 2);
  expect("2 threads over 1, N >= 512", 11, Kind::speedup, 1.9, 0, 2);
  expect("smallest call from C", 1, Kind::microseconds, 3, 0);
  EXPECT_EQ(cpu_bars().size(), 9u);
  for (const CpuBar& bar : cpu_bars())
    EXPECT_EQ(bar.kernel, bar.of == "amx" || bar.kind == Kind::gflops ? "cpu/amx" : "");
  EXPECT_EQ(bar_named("float32 D=128").of, "fma");
  EXPECT_EQ(bar_named("decoding bf16, groups up to 8").of, "read");
  for (const std::string& problem : bar_named("decoding bf16, groups up to 8").problems())
    EXPECT_LE(parse_problem(problem).group(), 8);
}

TEST(CpuBars, AreMetOrMissedByTheQuickestSamples) {
  const CpuBar& bar = bar_named("bf16 D=128, N >= 1024");
  EXPECT_EQ(judged(rows_of(bar, 1, 0.405), bar).state, BarState::met);
  const CpuBarResult missed = judged(rows_of(bar, 1, 0.39), bar);
  EXPECT_EQ(missed.state, BarState::missed);
  EXPECT_DOUBLE_EQ(missed.farthest->quickest, 0.39);
  EXPECT_EQ(judged(rows_of(bar, 1, 0.405), bar).why, "");
  // A machine that was slow for most of the time is named, and so is one whose medians spread.
  std::vector<CpuRow> slow = rows_of(bar, 1, 0.41), wide = slow;
  slow[0].shares["amx"].estimate = 0.3;
  wide[0].shares["amx"].interval.lower = 0.3;
  for (const auto& rows : {slow, wide}) {
    EXPECT_EQ(judged(rows, bar).state, BarState::met);
    EXPECT_THAT(judged(rows, bar).why, HasSubstr("not in all medians"));
  }
}

TEST(CpuBars, TheRowThatIsFarthestDecides) {
  const CpuBar& bar = bar_named("decoding bf16, groups up to 8");
  std::vector<CpuRow> rows = rows_of(bar, 2, 0.9);
  EXPECT_EQ(judged(rows, bar).state, BarState::met);
  rows[1].shares["read"] = about(0.5);
  const CpuBarResult result = judged(rows, bar);
  EXPECT_EQ(result.state, BarState::missed);
  EXPECT_EQ(result.farthest_problem, rows[1].problem);
  EXPECT_THAT(result.why, HasSubstr(rows[1].problem));
  EXPECT_EQ(result.rows, 3u);
  rows.pop_back();
  EXPECT_EQ(judged(rows, bar).state, BarState::incomplete);
}

TEST(CpuBars, OfTilesDoNotApplyToOtherKernels) {
  const CpuBar& bar = bar_named("f16 D=128");
  const CpuBarResult result = judged(rows_of(bar, 1, 0.9, "cpu/avx512"), bar);
  EXPECT_EQ(result.state, BarState::inapplicable);
  EXPECT_EQ(name_of(result.state), "does not apply");
  EXPECT_THAT(result.why, HasSubstr("cpu/avx512 was measured"));
  const CpuBar& any = bar_named("float32 D=128");
  EXPECT_EQ(judged(rows_of(any, 1, 0.9, "cpu/avx512"), any).state, BarState::met);
}

TEST(CpuBars, AreJudgedForEveryNumberOfThreadsTheyApplyTo) {
  const CpuBar& any = bar_named("bf16 D=64, N >= 1024");
  std::vector<CpuRow> rows = rows_of(any, 1, 0.35);
  for (const CpuRow& row : rows_of(any, 2, 0.25)) rows.push_back(row);
  const auto results = compare_with_cpu_bars(rows, {any});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].threads, 1);
  EXPECT_EQ(results[0].state, BarState::met);
  EXPECT_EQ(results[1].threads, 2);
  EXPECT_EQ(results[1].state, BarState::missed);

  const CpuBar& two = bar_named("mission, bf16 full");
  EXPECT_EQ(judged(rows_of(two, 16, 1), two).state, BarState::inapplicable);
  EXPECT_THAT(judged(rows_of(two, 16, 1), two).why, HasSubstr("--threads 2"));
  rows = rows_of(two, 2, 1);  // 1 GFLOP in 1 ms
  EXPECT_EQ(judged(rows, two).state, BarState::missed);
  for (CpuRow& row : rows) row.seconds = about(0.5e-3);
  EXPECT_EQ(judged(rows, two).state, BarState::met);
  EXPECT_DOUBLE_EQ(judged(rows, two).farthest->quickest, 2000);
}

TEST(CpuBars, TheGainOfASecondThreadNeedsBoth) {
  const CpuBar& bar = bar_named("2 threads over 1, N >= 512");
  std::vector<CpuRow> rows = rows_of(bar, 2, 1);
  EXPECT_EQ(judged(rows, bar).state, BarState::inapplicable);
  EXPECT_THAT(judged(rows, bar).why, HasSubstr("--threads 1,2"));
  for (CpuRow& row : rows) row.speedups[1] = about(1.95);
  for (const CpuRow& row : rows_of(bar, 1, 1)) rows.push_back(row);
  EXPECT_EQ(judged(rows, bar).state, BarState::met);
  rows[4].speedups[1] = about(1.5);
  EXPECT_EQ(judged(rows, bar).state, BarState::missed);
  EXPECT_EQ(judged(rows, bar).farthest_problem, rows[4].problem);
}

TEST(CpuBars, OfTimeAreMetFromBelow) {
  const CpuBar& bar = bar_named("smallest call from C");
  std::vector<CpuRow> rows = rows_of(bar, 1, 1);
  EXPECT_EQ(judged(rows, bar).state, BarState::missed);  // 1 ms
  rows[0].seconds = about(0.5e-6);
  EXPECT_EQ(judged(rows, bar).state, BarState::met);
  rows[0].seconds.interval.upper = 4e-6;
  EXPECT_THAT(judged(rows, bar).why, HasSubstr("not in all medians"));
  rows[0].seconds.quickest = 4e-6;
  EXPECT_EQ(judged(rows, bar).state, BarState::missed);
}

TEST(CpuBars, AreShownWithTheirFigures) {
  const CpuBar& bar = bar_named("bf16 D=128, N >= 1024");
  const auto results = compare_with_cpu_bars(rows_of(bar, 2, 0.5), cpu_bars());
  ASSERT_EQ(results.size(), 2u) << "this one, and the gain of a second thread";
  const std::string text = cpu_bars_table(results).text();
  for (const char* part : {"50.0 %  50.0 % [49.5, 50.5]", "40 % of amx", "55 % of amx", "met", "does not apply: "})
    EXPECT_THAT(text, HasSubstr(part));
  const nlohmann::json json = to_json(results[0]);
  EXPECT_EQ(json.at("state"), "met");
  EXPECT_EQ(json.at("kind"), "share");
  EXPECT_EQ(json.at("of"), "amx");
  EXPECT_EQ(json.at("threads"), 2);
  EXPECT_DOUBLE_EQ(json.at("quickest"), 0.5);
  EXPECT_DOUBLE_EQ(json.at("median"), 0.5);
  EXPECT_TRUE(compare_with_cpu_bars({}, cpu_bars()).empty());
}

TEST(CpuBars, AFileThatIsWrongIsRefused) {
  const auto refused = [](const std::string& text, const char* why) {
    EXPECT_THAT([&] { cpu_bars_from("[[cpu_bar]]\nname = 'a'\n" + text); }, ThrowsMessage<Error>(HasSubstr(why)))
        << text;
  };
  refused("set = 'cpu'", "share or one of");
  refused("set = 'cpu'\nshare = 0.4\ngflops = 3\nof = 'amx'", "share or one of");
  refused("set = 'cpu'\nshare = 0.4", "of is missing");
  refused("set = 'cpu'\nspeedup = 1.9", "needs threads and over_threads");
  refused("set = 'cpu'\nmicroseconds = 3\nmean = 1", "mean is not known");
  refused("set = 'cpu'\nmicroseconds = 3\nwords = ['d77']", "leave no problem");
  refused("set = 'cpu'\nmicroseconds = 3\n[[other]]\nname = 'b'", "[[cpu_bar]] entries");
}

}  // namespace
}  // namespace attune::lab
