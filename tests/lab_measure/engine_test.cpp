// The whole protocol on simulated noise: what it concludes, in which order it measures, and when it stops.
#include "lab/measure/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.hpp"
#include "lab/measure/cpu_contender.hpp"
#include "simulated.hpp"

namespace attune::lab {
namespace {

using stats::Outcome;
using testing::HasSubstr;

// Baseline, its twin, and one contender.
Result measure(SimulatedMachine& machine, Simulated baseline, Simulated twin, Simulated contender,
               const Protocol& protocol = {}) {
  Session session(protocol, machine);
  session.add(std::make_unique<SimulatedContender>("baseline", machine, baseline));
  session.add_twin(std::make_unique<SimulatedContender>("baseline", machine, twin));
  session.add(std::make_unique<SimulatedContender>("contender", machine, contender));
  return session.run();
}

Outcome outcome(const Result& result) { return result.analysis.comparisons.at(0).verdict.outcome; }
bool is_claim(Outcome outcome) { return outcome == Outcome::faster || outcome == Outcome::slower; }

TEST(Engine, SeesThreePerCentAndLeavesACopyAlone) {
  for (uint64_t run = 0; run < 20; ++run) {
    SimulatedMachine machine(run), another(100 + run), third(200 + run);
    const Result slowed = measure(machine, {1e-4}, {1e-4}, {1.03e-4});
    EXPECT_EQ(outcome(slowed), Outcome::slower) << run;
    EXPECT_FALSE(slowed.analysis.unfit()) << slowed.analysis.noise_floor->reason;
    EXPECT_EQ(outcome(measure(another, {1e-4}, {1e-4}, {1e-4 / 1.03})), Outcome::faster) << run;
    EXPECT_FALSE(is_claim(outcome(measure(third, {1e-4}, {1e-4}, {1e-4})))) << run;
  }
}

TEST(Engine, ATwinThatDiffersMakesTheRunUnfit) {
  SimulatedMachine machine(1);
  const Result result = measure(machine, {1e-4}, {1.02e-4}, {1e-4});
  EXPECT_TRUE(result.analysis.unfit());
  EXPECT_THAT(result.analysis.noise_floor->reason, HasSubstr("misses 1"));
  EXPECT_EQ(result.analysis.comparisons.size(), 1u) << "the twin is not a contender";
}

TEST(Engine, WithoutATwinTheNoiseIsUnknown) {
  SimulatedMachine machine(1);
  Session session({}, machine);
  session.add(std::make_unique<SimulatedContender>("only", machine, Simulated{}));
  const Result result = session.run();
  EXPECT_FALSE(result.analysis.noise_floor.has_value());
  EXPECT_TRUE(result.analysis.comparisons.empty());
  EXPECT_NEAR(result.analysis.summaries.at(0).seconds, 1e-4, 3e-6);
}

TEST(Engine, ShortContendersAreRemadeBetweenRounds) {
  SimulatedMachine machine(1);
  Session session({}, machine);
  auto short_one = std::make_unique<SimulatedContender>("short", machine, Simulated{10e-6});
  auto long_one = std::make_unique<SimulatedContender>("long", machine, Simulated{40e-6});
  const auto *short_view = short_one.get(), *long_view = long_one.get();
  session.add(std::move(short_one));
  session.add(std::move(long_one));
  const Result result = session.run();
  EXPECT_EQ(short_view->remakes, 14);
  EXPECT_EQ(long_view->remakes, 0);
  EXPECT_TRUE(result.measurement.recordings[0].remade);
  EXPECT_FALSE(result.measurement.recordings[1].remade);
}

// Equal kernels whose buffers lie by luck up to a few per cent better or worse.
TEST(Engine, RemakingKeepsPlacementFromLookingLikeSpeed) {
  constexpr Simulated kernel{.seconds = 10e-6, .placement_sigma = 0.02};
  Protocol never;
  never.remake_below_seconds = 0;
  int claims = 0, claims_without = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    SimulatedMachine machine(run), same_machine(run);
    claims += is_claim(outcome(measure(machine, kernel, kernel, kernel)));
    claims_without += is_claim(outcome(measure(same_machine, kernel, kernel, kernel, never)));
  }
  EXPECT_LE(claims, 4) << "3.5 % of 40 are expected";
  EXPECT_GE(claims_without, 20);
}

TEST(Engine, EveryRoundMeasuresEveryContenderThereAndBack) {
  SimulatedMachine machine(1);
  Protocol protocol;
  protocol.rounds = 8;
  protocol.samples = 2;
  Session session(protocol, machine);
  for (const char* name : {"a", "b", "c"})
    session.add(std::make_unique<SimulatedContender>(name, machine, Simulated{.noisy = false}));
  const Result result = session.run();

  // Warm-up: 3 batches each. A round: a lead-in and a sample each, and the same backwards; the one at the turning point
  // and one that a new round begins with need no second lead-in.
  std::vector<std::string> visits(machine.visits.begin() + 9, machine.visits.end());
  std::set<std::string> first_orders;
  size_t at = 0;
  std::string previous;
  for (int round = 0; round < 8; ++round) {
    std::vector<std::string> turns;
    while (turns.size() < 6) {
      const std::string& who = visits.at(at);
      if (who != previous) ++at;  // lead-in
      ASSERT_EQ(visits.at(at), who);
      ++at;
      previous = who;
      turns.push_back(who);
    }
    EXPECT_EQ(std::set<std::string>(turns.begin(), turns.begin() + 3).size(), 3u);
    EXPECT_TRUE(std::equal(turns.begin(), turns.begin() + 3, turns.rbegin()));
    first_orders.insert(turns[0] + turns[1] + turns[2]);
  }
  EXPECT_EQ(at, visits.size());
  EXPECT_GT(first_orders.size(), 2u) << "the order is shuffled";
  for (const Recording& recording : result.measurement.recordings) {
    ASSERT_EQ(recording.rounds.size(), 8u);
    for (const auto& round : recording.rounds) EXPECT_EQ(round.size(), 2u);
  }
}

TEST(Engine, AProbeSharesTheRoundsAndIsComparedWithNobody) {
  SimulatedMachine machine(1);
  Protocol protocol;
  protocol.samples = 2;
  Session session(protocol, machine);
  session.add(std::make_unique<SimulatedContender>("kernel", machine, Simulated{.noisy = false}));
  session.add_twin(std::make_unique<SimulatedContender>("kernel", machine, Simulated{.noisy = false}));
  session.add(std::make_unique<SimulatedContender>("other", machine, Simulated{.noisy = false}));
  session.add_probe(std::make_unique<SimulatedContender>("probe", machine, Simulated{.seconds = 3e-4, .noisy = false}),
                    "kernel");
  const Result result = session.run();
  ASSERT_EQ(result.measurement.recordings.size(), 4u);
  const Recording& probe = result.measurement.recordings[3];
  EXPECT_EQ(probe.role, Role::probe);
  ASSERT_EQ(probe.rounds.size(), 15u);
  for (const auto& round : probe.rounds) EXPECT_EQ(round.size(), 2u);
  ASSERT_EQ(result.analysis.comparisons.size(), 1u);
  EXPECT_EQ(result.analysis.comparisons[0].name, "other");
  EXPECT_DOUBLE_EQ(result.analysis.summaries[3].seconds, 3e-4);
  // Among the others, in the shuffled order: whoever is visited before it changes from round to round.
  std::set<std::string> neighbours;
  const std::vector<std::string> visits(machine.visits.begin() + 12, machine.visits.end());  // after the warm-up
  for (size_t i = 1; i < visits.size(); ++i)
    if (visits[i] == "probe") neighbours.insert(visits[i - 1]);
  EXPECT_THAT(neighbours, testing::UnorderedElementsAre("kernel", "other", "probe"));

  const RoundRatio ratio = round_ratio(probe, result.measurement.recordings[0], {}, 6, 1);
  EXPECT_THAT(ratio.by_round, testing::Each(testing::DoubleNear(0.5, 1e-9)));
  EXPECT_NEAR(ratio.estimate, 0.5, 1e-9);
  EXPECT_NEAR(ratio.interval.lower, 0.5, 1e-9);
}

TEST(Engine, ABatchOfAProbeLastsAsLongAsTheKernels) {
  SimulatedMachine machine(1);
  const auto calls = [&](const char* name, double seconds) {
    return std::make_unique<CpuContender>(
        name, [&machine, seconds] { machine.pass(seconds); }, std::function<void(uint64_t)>{}, machine);
  };
  Session session({}, machine);
  session.add(calls("long", 60e-3));
  session.add(calls("short", 1e-6));
  session.add_probe(calls("beside the long", 1e-3), "long");
  session.add_probe(calls("beside the short", 1e-3), "short");
  const auto recordings = session.run().measurement.recordings;
  EXPECT_NEAR(std::stod(recordings[2].facts.at("calls_per_sample")), 60, 7);
  EXPECT_NEAR(std::stod(recordings[3].facts.at("calls_per_sample")), 2, 1) << "a sample of 2 ms";
}

TEST(Engine, TheSeedDecidesTheOrder) {
  const auto visits = [](uint64_t seed) {
    SimulatedMachine machine(1);
    Protocol protocol;
    protocol.seed = seed;
    Session session(protocol, machine);
    for (const char* name : {"a", "b", "c"})
      session.add(std::make_unique<SimulatedContender>(name, machine, Simulated{.noisy = false}));
    session.run();
    return machine.visits;
  };
  EXPECT_EQ(visits(5), visits(5));
  EXPECT_NE(visits(5), visits(6));
}

class Unsettled final : public Contender {
 public:
  explicit Unsettled(SimulatedMachine& machine, int agree_from) : machine_(machine), agree_from_(agree_from) {}
  std::string_view name() const override { return "unsettled"; }
  void prepare(double, uint64_t) override {}
  void remake(uint64_t) override {}
  Sample sample() override {
    machine_.pass(2e-3);
    return {++taken_ < agree_from_ && taken_ % 2 == 0 ? 1.1e-3 : 1e-3, 0};
  }
  int taken() const { return taken_; }

 private:
  SimulatedMachine& machine_;
  int agree_from_, taken_ = 0;
};

TEST(Engine, WarmUpEndsWhenThreeBatchesAgreeOrTimeIsUp) {
  Protocol protocol;
  protocol.rounds = 1;
  protocol.samples = 1;
  const auto run = [&](int agree_from) {
    SimulatedMachine machine(1);
    Session session(protocol, machine);
    auto contender = std::make_unique<Unsettled>(machine, agree_from);
    const Unsettled* view = contender.get();
    session.add(std::move(contender));
    const bool settled = session.run().measurement.recordings[0].settled;
    return std::pair(settled, view->taken() - 2);  // one lead-in, one sample
  };
  EXPECT_EQ(run(0), std::pair(true, 3));
  EXPECT_EQ(run(10), std::pair(true, 11));  // samples 9, 10, 11 are the first three alike
  EXPECT_EQ(run(1 << 20), std::pair(false, 100));
}

TEST(Engine, ABudgetLowersSamplesAndNeverRounds) {
  Protocol protocol;
  protocol.budget_seconds = 0.5;
  SimulatedMachine machine(1);
  const Result result = measure(machine, {1e-4}, {1e-4}, {1e-4}, protocol);
  EXPECT_EQ(result.measurement.recordings[0].rounds.size(), 15u);
  EXPECT_LT(result.measurement.samples_per_round, 10);
  EXPECT_GT(result.measurement.samples_per_round, 1);
  EXPECT_LE(result.measurement.elapsed_seconds, 0.5);

  protocol.budget_seconds = 1e-6;
  SimulatedMachine again(1);
  EXPECT_EQ(measure(again, {1e-4}, {1e-4}, {1e-4}, protocol).measurement.samples_per_round, 1);
}

TEST(Engine, ADifferenceOfTheClockIsNamedAsSuch) {
  SimulatedMachine machine(1), another(1);
  const Simulated base{.seconds = 1e-4, .clock_hz = 1.8e9};
  const Result throttled = measure(machine, base, base, {.seconds = 1.05e-4, .clock_hz = 1.8e9 / 1.05});
  EXPECT_EQ(outcome(throttled), Outcome::slower) << "time is what users get";
  EXPECT_TRUE(throttled.analysis.comparisons[0].clocks_differ);
  EXPECT_NE(throttled.analysis.comparisons[0].verdict.reason.find("the clock's"), std::string::npos);
  const Result slower = measure(another, base, base, {.seconds = 1.05e-4, .clock_hz = 1.8e9});
  EXPECT_EQ(outcome(slower), Outcome::slower);
  EXPECT_FALSE(slower.analysis.comparisons[0].clocks_differ);
  EXPECT_EQ(slower.analysis.comparisons[0].verdict.reason, "the interval is clear of 1");
  EXPECT_DOUBLE_EQ(slower.analysis.summaries[0].clock_hz, 1.8e9);
}

TEST(Engine, ReportsProgressThroughTheRun) {
  SimulatedMachine machine(1);
  Session session({}, machine);
  session.add(std::make_unique<SimulatedContender>("a", machine, Simulated{}));
  session.add(std::make_unique<SimulatedContender>("b", machine, Simulated{}));
  std::vector<Progress> seen;
  const Result result = session.run([&](const Progress& progress) { seen.push_back(progress); });
  // Both ways through each of 15 rounds two turns that begin and the batches in them: whoever hangs is known.
  ASSERT_EQ(seen.size(), 2u + 2u + 15u * (4u + 2u * 10u));
  EXPECT_EQ(seen.front().phase, Progress::Phase::prepare);
  EXPECT_EQ(seen.back().phase, Progress::Phase::rounds);
  EXPECT_EQ(seen.back().round, 14);
  EXPECT_NEAR(seen.back().expected_seconds, result.measurement.elapsed_seconds, 0.1 * seen.back().expected_seconds);
}

TEST(Engine, RefusesWhatItCannotMeasure) {
  SimulatedMachine machine(1);
  const auto contender = [&](const char* name) {
    return std::make_unique<SimulatedContender>(name, machine, Simulated{});
  };
  Session empty({}, machine);
  EXPECT_THROW(empty.run(), Error);
  EXPECT_THROW(empty.add_twin(contender("a")), Error);
  Session session({}, machine);
  session.add(contender("a"));
  EXPECT_THROW(session.add(contender("a")), Error);
  session.add_twin(contender("a"));
  EXPECT_THROW(session.add_twin(contender("a")), Error);
  EXPECT_THROW(session.add_probe(contender("a"), "a"), Error) << "a name that is taken";
  EXPECT_THROW(session.add_probe(contender("probe"), "nobody"), Error);
  Protocol none;
  none.rounds = 0;
  EXPECT_THROW(Session(none, machine), Error);
  Protocol hot;
  hot.mode = "hot";
  EXPECT_THROW(Session(hot, machine), Error);
}

}  // namespace
}  // namespace attune::lab
