// Rows of a speed record: ratios to peers, derived ones among them, and the tables made of them.
#include "lab/report/speed_rows.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.hpp"
#include "lab/cmd/peer_bench.hpp"
#include "lab/evidence/recorded_ratios.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/report/repeatability.hpp"
#include "lab/report/speed_text.hpp"
#include "lab/sets.hpp"
#include "records.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* problem = "fwd b4 h16/16 q4096 k4096 d128 bf16 causal-br";

TEST(SpeedRows, RatiosAreSpeedUpsOfAttune) {
  const auto rows =
      speed_rows(record_of({steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}, {"flash", 3e-4}})}));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].kernel, "sm90/fwd");
  EXPECT_NEAR(rows[0].find("cudnn")->estimate, 1.25, 1e-9);
  EXPECT_EQ(rows[0].find("cudnn")->outcome, stats::Outcome::faster);
  EXPECT_NEAR(rows[0].find("flash")->estimate, 0.75, 1e-9);
  EXPECT_EQ(rows[0].find("flash")->outcome, stats::Outcome::slower);
  EXPECT_EQ(rows[0].fastest()->peer, "flash");
  EXPECT_EQ(rows[0].find("fa3"), nullptr);
}

TEST(SpeedRows, ARecordedPeerIsDerivedFromCudnn) {
  SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}});
  result.recorded["fa3"] = {1.25, 1.2, 1.3};
  const auto rows = speed_rows(record_of({result}));
  const Against& fa3 = *rows[0].find("fa3");
  EXPECT_TRUE(fa3.derived);
  EXPECT_NEAR(fa3.seconds, 4e-4, 1e-9);
  EXPECT_NEAR(fa3.estimate, 1, 1e-9);
  EXPECT_EQ(fa3.outcome, stats::Outcome::same);
  EXPECT_EQ(rows[0].fastest()->peer, "fa3");
}

TEST(SpeedRows, APeerThatIsHereIsNotDerived) {
  SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}, {"fa3", 6e-4}});
  result.recorded["fa3"] = {1.25, 1.2, 1.3};
  const auto rows = speed_rows(record_of({result}));
  EXPECT_EQ(rows[0].peers.size(), 2u);
  EXPECT_FALSE(rows[0].find("fa3")->derived);
}

TEST(SpeedRows, ProblemsWithoutAttuneHaveNoRow) {
  EXPECT_TRUE(speed_rows(record_of({steady_result(problem, {{"cudnn", 5e-4}})})).empty());
}

TEST(SpeedRows, EveryKernelOfAttuneHasOne) {
  SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"other", 2e-4}, {"cudnn", 5e-4}});
  result.result.measurement.recordings[1].facts["kernel"] = "sm90/other";
  result.result.analysis = analyse(result.result.measurement);
  const auto rows = speed_rows(record_of({result}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_NEAR(rows[1].find("cudnn")->estimate, 2.5, 1e-9);
  EXPECT_EQ(rows[1].peers.size(), 1u);
}

TEST(SpeedText, OneLinePerRowAndBar) {
  SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}, {"flash", 9e-4}});
  result.recorded["fa3"] = {1.25, 1.2, 1.3};
  const auto rows = speed_rows(record_of({result}));
  const std::string text = speed_table(rows).text();
  EXPECT_THAT(text, HasSubstr("over cudnn"));
  EXPECT_THAT(text, HasSubstr("over fa3 (recorded)"));
  EXPECT_THAT(text, HasSubstr("400.0 [400.0, 400.0]"));
  EXPECT_THAT(text, HasSubstr("1.250 [1.250, 1.250]"));
  EXPECT_THAT(text, HasSubstr("same (fa3)"));
  const auto results = compare_with_bars(rows, bars());
  ASSERT_EQ(results.size(), 1u);
  EXPECT_THAT(bars_table(results).text(), HasSubstr("incomplete: 'fwd"));
  EXPECT_EQ(to_json(rows[0])["peers"]["fa3"]["derived"], true);
  EXPECT_EQ(to_json(results[0])["state"], "incomplete");
}

TEST(Repeatability, CountsFlipsAndMoves) {
  using enum stats::Outcome;
  const auto rows = [](double cudnn) {
    std::vector<SpeedResult> results;
    for (int i = 0; i < 30; ++i)
      results.push_back(steady_result(fmt::format("fwd b{} h1/1 q8 k8 d64 f16", i + 1),
                                      {{"attune", 1e-4}, {"cudnn", i == 0 ? cudnn : 2e-4}}));
    results[1].recorded["fa3"] = {1, 1, 1};
    return speed_rows(record_of(results));
  };
  const auto first = rows(1.1e-4);
  EXPECT_EQ(compare_runs(first, first).repeats.size(), 30u) << "what is derived is not measured twice";
  EXPECT_TRUE(compare_runs(first, first).holds());
  const Repeatability flipped = compare_runs(first, rows(0.9e-4));
  EXPECT_EQ(flipped.flips(), 1);
  EXPECT_FALSE(flipped.holds());
  Repeatability moved = compare_runs(first, first);
  moved.repeats[0].second = unclear;
  EXPECT_EQ(moved.moves(), 1);
  EXPECT_TRUE(moved.holds()) << "1 of 30";
  moved.repeats[1].second = unclear;
  EXPECT_FALSE(moved.holds()) << "2 of 30";
  EXPECT_FALSE(compare_runs(first, {}).holds()) << "nothing was repeated";
}

class Ratios : public testing::Test {
 protected:
  RecordedRatios read(const std::string& text) {
    std::ofstream(directory.path() / "ratios.jsonl") << text;
    return RecordedRatios::from_file((directory.path() / "ratios.jsonl").string());
  }
  const std::string line =
      R"({"B": 4, "H": 16, "S": 4096, "D": 128, "causal": true, "dt": "bf16",
          "speed_vs_cudnn": {"cudnn_again": [1, 1, 1], "sdpa_flash": [0.5, 0.5, 0.5], "fa3": [1.25, 1.2, 1.3]}})";
  const test::TemporaryDirectory directory;
};

TEST_F(Ratios, AreFoundForTheirProblemAndNoOther) {
  std::string one_line = line;
  std::erase(one_line, '\n');
  const RecordedRatios ratios = read(one_line + "\n");
  EXPECT_EQ(ratios.of(problem).size(), 1u) << "SDPA's backends can be measured";
  EXPECT_THAT(ratios.of(problem).at("fa3"), ElementsAre(1.25, 1.2, 1.3));
  for (const char* other :
       {"fwd b4 h16/16 q4096 k4096 d128 f16 causal-br", "fwd b4 h16/16 q4096 k4096 d128 bf16",
        "fwd b4 h16/4 q4096 k4096 d128 bf16 causal-br", "fwd b4 h16/16 q4096 k8192 d128 bf16 causal-br"})
    EXPECT_TRUE(ratios.of(other).empty()) << other;
}

TEST_F(Ratios, OfGradientsAreKeptApart) {
  const std::string backward = R"({"tag": "bwd", "B": 4, "H": 16, "Hk": 16, "S": 4096, "D": 128, "causal": true, )";
  const RecordedRatios ratios = read(
      backward +
      R"("speed_vs_cudnn": {"flash": [0.5, 0.5, 0.5], "fa3": [1.1, 1, 1.2]}})"
      "\n" +
      R"({"tag": "bwd", "B": 4, "H": 32, "Hk": 8, "S": 4096, "D": 128, "causal": true, "speed_vs_cudnn": {"fa3": [2, 2, 2]}})"
      "\n" +
      R"({"tag": "bwd", "B": 8, "H": 16, "S": 2048, "D": 128, "causal": true, "attune_faster_than": {}})"
      "\n" +
      R"({"tag": "paged", "B": 16, "H": 32, "Sq": 1})"
      "\n");
  const std::string gradients = "bwd" + std::string(problem).substr(3);
  EXPECT_THAT(ratios.of(gradients).at("fa3"), ElementsAre(1.1, 1, 1.2));
  EXPECT_THAT(ratios.measurable(gradients).at("flash"), ElementsAre(0.5, 0.5, 0.5));
  EXPECT_TRUE(ratios.of(problem).empty()) << "forward passes have ratios of their own";
  EXPECT_TRUE(ratios.of("bwd b4 h32/32 q4096 k4096 d128 bf16 causal-br").empty()) << "recorded with grouped heads";
}

TEST_F(Ratios, OfWhatIsMeasuredAreCompared) {
  std::string one_line = line;
  std::erase(one_line, '\n');
  const RecordedRatios ratios = read(one_line + "\n");
  const auto rows_with = [&](double flash, double scale) {
    return speed_rows(record_of(
        {steady_result(problem, {{"attune", 4e-4 * scale}, {"cudnn", 5e-4 * scale}, {"flash", flash * scale}})}));
  };
  EXPECT_THAT(agreement_with(ratios, rows_with(1e-3, 1)), HasSubstr("1 compared, the farthest apart by +0.0 %: flash"));
  EXPECT_THAT(agreement_with(ratios, rows_with(1.04e-3, 1)), HasSubstr("by -3.8 %"));
  std::vector<SpeedRow> slow_clock = rows_with(1.04e-3, 1);
  for (Against& peer : slow_clock[0].peers)
    if (peer.peer == "flash") peer.clock_hz /= 1.04;
  EXPECT_THAT(agreement_with(ratios, slow_clock),
              AllOf(HasSubstr("farthest apart by -3.8 %: flash"), HasSubstr("in clock cycles by +0.0 %: flash")));
  EXPECT_EQ(agreement_with(ratios, rows_with(1e-3, 0.1)), "") << "too short to compare";
  EXPECT_EQ(agreement_with({}, rows_with(1e-3, 1)), "");
}

TEST_F(Ratios, AFileOfSomethingElseIsRefused) {
  EXPECT_THAT([&] { read("{\"tag\": \"ceiling\"}\n"); },
              testing::ThrowsMessage<Error>(HasSubstr("line 1: not a recorded")));
  EXPECT_THROW(RecordedRatios::from_file("/nonexistent"), Error);
}

HostLines lines_with(const json& changes = json::object()) {
  const SpeedResult result = steady_result(problem, {{"attune", 4e-4}, {"cudnn", 5e-4}});
  json line = {{"problem", problem},
               {"flops", 4e11},
               {"kernels", {"attune"}},
               {"checks", {{"attune", {{"rel_rms", 1e-3}, {"lse_err", nullptr}}}}},
               {"facts", json::object()},
               {"absent", json::object()},
               {"wrong", json::object()},
               {"failed", ""},
               {"result", to_json(result.result)}};
  line.update(changes);
  return {{{"environment", json::object()}}, {line, line}};
}

TEST(PeerBench, LinesBecomeResultsOfARecordThatHolds) {
  const std::vector<SpeedResult> results = results_of(lines_with(), {});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].flops, 4e11);
  EXPECT_THAT(results[0].checks.at("attune"), ElementsAre(testing::Pair("rel_rms", 1e-3)));
  EXPECT_THAT(verify(record_of(results)), testing::IsEmpty());
  EXPECT_TRUE(results_of(lines_with({{"result", nullptr}}), {}).empty());
}

TEST(PeerBench, RemarksNameWhoIsMissing) {
  EXPECT_TRUE(remarks_on(lines_with()).empty());
  EXPECT_THAT(remarks_on(lines_with({{"absent", {{"fa3", "not here"}}}})), ElementsAre("absent: fa3: not here"));
  EXPECT_THAT(remarks_on(lines_with({{"failed", "cuGraphLaunch"}})),
              testing::Each(HasSubstr("failed: fwd b4 h16/16 q4096 k4096 d128 bf16 causal-br: cuGraphLaunch")));
  EXPECT_THAT(remarks_on(lines_with({{"wrong", {{"flash", "RMS"}}}})),
              testing::Each(HasSubstr("not timed, because it is wrong: flash: ")));
}

TEST(PeerBench, TheWholeGridFitsIntoFourMinutes) {
  PeerBench bench;
  bench.problems = find_set("grid").problems;
  bench.protocol.budget_seconds = 2;
  EXPECT_LT(predicted_seconds(bench), 240);

  bench.problems = find_set("models").problems;
  bench.protocol.budget_seconds = 1;
  bench.options.peers = {"default", "cudnn", "flash", "efficient", "varlen"};
  const double without_flex = predicted_seconds(bench);
  bench.options.peers.push_back("flex");
  EXPECT_NEAR(predicted_seconds(bench) - without_flex, 10 * 12, 1e-6) << "ten calls with what SDPA cannot say";
  EXPECT_LT(predicted_seconds(bench), 360);
}

}  // namespace
}  // namespace attune::lab
