// What keeps a figure from being believed: noise that is larger than the difference, and more than a ceiling allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/cmd/timed_rows.hpp"
#include "lab/measure/analysis.hpp"
#include "lab/measure/share.hpp"
#include "lab/report/card_time.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

stats::Verdict verdict(stats::Outcome outcome, double estimate) {
  stats::Verdict made;
  made.outcome = outcome;
  made.estimate = estimate;
  return made;
}

NoiseFloor copies(double lower, double upper) {
  NoiseFloor floor;
  floor.fit = true;
  floor.comparison.verdict.interval = {lower, upper, 0.95};
  return floor;
}

TEST(Noise, ADifferenceSmallerThanThatOfTwoCopiesIsUnclear) {
  const NoiseFloor wide = copies(0.65, 1.03);  // holds 1, and is of no use
  for (const double estimate : {0.9, 0.7, 1.2, 1.5}) {
    const stats::Outcome claimed = estimate < 1 ? stats::Outcome::faster : stats::Outcome::slower;
    const stats::Verdict judged = within_noise(verdict(claimed, estimate), wide, {});
    EXPECT_EQ(judged.outcome, stats::Outcome::unclear) << estimate;
    EXPECT_THAT(judged.reason, HasSubstr("two copies of the baseline differed by [0.6500, 1.0300]"));
  }
  EXPECT_EQ(within_noise(verdict(stats::Outcome::faster, 0.5), wide, {}).outcome, stats::Outcome::faster);
  EXPECT_EQ(within_noise(verdict(stats::Outcome::slower, 2.0), wide, {}).outcome, stats::Outcome::slower);
  EXPECT_EQ(within_noise(verdict(stats::Outcome::same, 1.0), wide, {}).outcome, stats::Outcome::unclear);
}

TEST(Noise, ThatIsSmallTakesNothingBack) {
  const NoiseFloor quiet = copies(0.998, 1.003);
  EXPECT_EQ(within_noise(verdict(stats::Outcome::faster, 0.98), quiet, {}).outcome, stats::Outcome::faster);
  EXPECT_EQ(within_noise(verdict(stats::Outcome::same, 1.001), quiet, {}).outcome, stats::Outcome::same);
  EXPECT_EQ(within_noise(verdict(stats::Outcome::faster, 0.98), std::nullopt, {}).outcome, stats::Outcome::faster);
}

TEST(RunStatus, WhatIsWrongCountsMoreThanWhatIsRefusedOrUnclear) {
  const auto status = [](auto... what) {
    RunStatus run;
    (run.note(what), ...);
    return run.exit_status();
  };
  const auto absent = [](NotTimed::Kind kind) { return NotTimed{{}, kind, "", {}}; };
  const TimedEntrant fine{};
  TimedEntrant drowned{}, alarming{}, unclear_by_itself{};
  drowned.drowned = true;
  alarming.alarm = "135 % of a ceiling";
  unclear_by_itself.against_first.emplace().verdict = verdict(stats::Outcome::unclear, 1.02);
  EXPECT_EQ(status(fine), 0);
  EXPECT_EQ(status(unclear_by_itself), 0) << "a result";
  EXPECT_EQ(status(fine, drowned), 4);
  EXPECT_EQ(status(alarming, fine), 4);
  EXPECT_EQ(status(drowned, absent(NotTimed::Kind::refused)), 3);
  EXPECT_EQ(status(drowned, absent(NotTimed::Kind::refused), absent(NotTimed::Kind::wrong)), 1);
  EXPECT_EQ(status(absent(NotTimed::Kind::lost), fine), 1);
}

TEST(Alarm, MoreThan110PerCentOfACeilingIsTold) {
  const Problem problem = parse_problem("fwd b1 h8/8 q1024 k1024 d128 bf16");
  Share share;
  share.ceiling = "matmul";
  share.value = 800;
  share.estimate = 1.09;
  EXPECT_EQ(ceiling_alarm(share, problem, "", {}), "");
  share.estimate = 1.35;
  EXPECT_THAT(ceiling_alarm(share, problem, "", {}), HasSubstr("135 % of the ceiling 'matmul'"));
  share.rounds.emplace().interval = {1.05, 1.6, 0.95};
  EXPECT_EQ(ceiling_alarm(share, problem, "", {}), "") << "the interval leaves room";
}

TEST(Alarm, CeilingsThatBoundNothingHereRaiseNone) {
  Share share;
  share.value = 100;
  share.estimate = 3;
  share.ceiling = "read";
  EXPECT_EQ(ceiling_alarm(share, parse_problem("fwd b1 h8/8 q1 k1024 d128 bf16"), "cpu/avx512", {}), "")
      << "in a cache";
  EXPECT_NE(ceiling_alarm(share, parse_problem("fwd b64 h32/32 q1 k4096 d128 bf16"), "cpu/avx512", {}), "");
  share.ceiling = "fma";
  const Problem f32 = parse_problem("fwd b1 h8/8 q1024 k1024 d128 f32");
  EXPECT_EQ(ceiling_alarm(share, f32, "cpu/amx", {}), "") << "float32 on tiles";
  EXPECT_NE(ceiling_alarm(share, f32, "cpu/avx512", {.tiles = true, .vectors = true}), "");
}

TEST(CardTime, IsMoneyWhereAnHourHasAPrice) {
  EXPECT_EQ(card_time_text(83.2, std::nullopt), "card time: 83 s");
  EXPECT_EQ(card_time_text(90, 4.0), "card time: 90 s, 0.1 at 4 per GPU hour");
}

}  // namespace
}  // namespace attune::lab
