// A result survives the way through JSON, and its conclusions follow from its samples alone.
#include "lab/measure/result_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "lab/measure/engine.hpp"
#include "simulated.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Result example(double clock_hz) {
  SimulatedMachine machine(4);
  Session session({}, machine);
  session.add(std::make_unique<SimulatedContender>("old", machine, Simulated{.clock_hz = clock_hz}));
  session.add_twin(std::make_unique<SimulatedContender>("old", machine, Simulated{.clock_hz = clock_hz}));
  session.add(std::make_unique<SimulatedContender>("new", machine, Simulated{.seconds = 9e-5, .clock_hz = clock_hz}));
  return session.run();
}

TEST(ResultJson, AnalysisFollowsFromTheStoredSamples) {
  for (const double clock_hz : {0.0, 1.7e9}) {
    const Result result = example(clock_hz);
    const json stored = json::parse(to_json(result).dump());
    const Measurement read = measurement_from_json(stored["measurement"]);
    EXPECT_EQ(to_json(read), stored["measurement"]);
    EXPECT_EQ(json::parse(to_json(analyse(read)).dump()), stored["analysis"]);
    EXPECT_EQ(stored["analysis"]["comparisons"][0]["verdict"], "faster");
    EXPECT_EQ(stored["analysis"]["comparisons"][0].contains("cycle_ratio"), clock_hz > 0);
    EXPECT_TRUE(stored["analysis"]["noise_floor"]["fit"].get<bool>());
  }
}

TEST(ResultJson, KeepsEverySample) {
  const json stored = to_json(example(0));
  ASSERT_EQ(stored["measurement"]["contenders"].size(), 3u);
  for (const json& contender : stored["measurement"]["contenders"]) {
    ASSERT_EQ(contender["seconds"].size(), 15u);
    for (const json& round : contender["seconds"]) {
      EXPECT_EQ(round.size(), 10u);
      EXPECT_LE(round[0].dump().size(), std::string("0.000123456").size()) << "six digits are stored";
    }
  }
}

TEST(ResultJson, ProbesComeBackAsProbes) {
  SimulatedMachine machine(4);
  Session session({}, machine);
  session.add(std::make_unique<SimulatedContender>("kernel", machine, Simulated{}));
  session.add_probe(std::make_unique<SimulatedContender>("probe", machine, Simulated{}), "kernel");
  const json stored = json::parse(to_json(session.run()).dump());
  EXPECT_EQ(stored["measurement"]["contenders"][1]["role"], "probe");
  const Measurement read = measurement_from_json(stored["measurement"]);
  EXPECT_EQ(read.recordings[1].role, Role::probe);
  EXPECT_EQ(json::parse(to_json(analyse(read)).dump()), stored["analysis"]);
  EXPECT_TRUE(stored["analysis"]["comparisons"].empty());
}

// Two contenders on the quickest of two CPUs, which take turns.
Result on_quiet_cpus() {
  struct Cpus final : ProcessCpus {
    const std::vector<Cpu>& usable() const override { return both; }
    std::vector<double> probe() override { return {1.0 + (++probes % 2), 1.5}; }
    void confine(const std::vector<int>&) override {}
    std::vector<Cpu> both{{0, 0}, {1, 1}};
    int probes = 0;
  };
  SimulatedMachine machine(4);
  Protocol protocol;
  protocol.quiet_cpus = 1;
  Session session(protocol, machine, [] { return std::make_unique<Cpus>(); });
  session.add(std::make_unique<SimulatedContender>("old", machine, Simulated{}));
  session.add(std::make_unique<SimulatedContender>("new", machine, Simulated{}));
  return session.run();
}

TEST(ResultJson, HasTheQuietCpusOfEachRoundWhereTheyWereChosen) {
  const json without = to_json(example(0))["measurement"];
  EXPECT_FALSE(without.contains("cpus"));
  EXPECT_FALSE(without["protocol"].contains("quiet_cpus")) << "records from before it was there are still read";

  const json stored = json::parse(to_json(on_quiet_cpus()).dump());
  EXPECT_EQ(stored["measurement"]["protocol"]["quiet_cpus"], 1);
  ASSERT_EQ(stored["measurement"]["cpus"].size(), 15u);
  EXPECT_EQ(stored["measurement"]["cpus"][0], json::array({0}));
  EXPECT_EQ(stored["measurement"]["cpus"][1], json::array({1}));
  const Measurement read = measurement_from_json(stored["measurement"]);
  EXPECT_EQ(read.protocol.quiet_cpus, 1);
  EXPECT_EQ(to_json(read), stored["measurement"]);
  EXPECT_EQ(json::parse(to_json(analyse(read)).dump()), stored["analysis"]);

  EXPECT_EQ(protocol_with({{"quiet_cpus", 2}}).quiet_cpus, 2);
  EXPECT_EQ(protocol_with(json::object()).quiet_cpus, 0);
  EXPECT_THROW(protocol_with({{"quiet_cpus", -1}}), Error);
}

void expect_refused(const json& measurement, const char* words) {
  try {
    analyse(measurement_from_json(measurement));
    FAIL() << "accepted; expected: " << words;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(words));
  }
}

TEST(ResultJson, RefusesDamagedMeasurements) {
  const json good = to_json(example(0))["measurement"];
  json bad = good;
  bad["protocol"].erase("rounds");
  expect_refused(bad, "'rounds' is missing");
  bad = good;
  bad["protocol"]["version"] = 99;
  expect_refused(bad, "version is 99");
  bad = good;
  bad["contenders"][1]["seconds"].erase(3);
  expect_refused(bad, "14 rounds");
  bad = good;
  bad["contenders"][1]["seconds"][2].erase(0);
  expect_refused(bad, "9 samples");
  bad = good;
  bad["contenders"][1]["seconds"][2][0] = -1.0;
  expect_refused(bad, "-1");
  bad = good;
  bad["contenders"][1]["role"] = "baseline";
  expect_refused(bad, "baseline");
  bad = good;
  bad["contenders"][2]["name"] = 7;
  expect_refused(bad, "'name' is 7");

  const json quiet = to_json(on_quiet_cpus())["measurement"];
  bad = quiet;
  bad["cpus"].erase(3);
  expect_refused(bad, "CPUs for 14 rounds");
  bad = quiet;
  bad["cpus"][3] = {0, 1};
  expect_refused(bad, "a round on 2 CPUs; the protocol has 1");
  bad = quiet;
  bad["cpus"][3] = 0;
  expect_refused(bad, "'cpus' is");
}

// Recorded on an H200: SDPA's cuDNN back end as baseline, its twin, and the flash back end. What a card's samples said
// once, they say for ever.
TEST(ResultJson, ARecordingOfARealCardIsJudgedAsItWas) {
  std::ifstream file(test::repo() + "/tests/lab_measure/data/sdpa-on-h200.json");
  const json rows = json::parse(file);
  ASSERT_EQ(rows.size(), 7u);
  for (const json& row : rows) {
    const Analysis analysis = analyse(measurement_from_json(row["measurement"]));
    const json& stored = row["analysis"]["comparisons"][0];
    const Comparison& comparison = analysis.comparisons.at(0);
    EXPECT_EQ(std::string(stats::name_of(comparison.verdict.outcome)), stored["verdict"].get<std::string>())
        << row["problem"];
    EXPECT_DOUBLE_EQ(comparison.verdict.estimate, stored["ratio"]) << row["problem"];
    EXPECT_DOUBLE_EQ(comparison.verdict.interval.lower, stored["interval"][0]) << row["problem"];
    EXPECT_DOUBLE_EQ(comparison.verdict.interval.upper, stored["interval"][1]) << row["problem"];
    EXPECT_TRUE(comparison.verdict.cycle_interval.has_value()) << "the card's clock is known";
    EXPECT_FALSE(analysis.unfit()) << row["problem"];
  }
}

}  // namespace
}  // namespace attune::lab
