// Processes for code from outside: several at once, kept ones, and who is at work in them.
#include "lab/trial/child.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lab/trial/places.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

class TrialsTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = own_command();
    set_own_command({test::build() + "/attune"});
  }
  void TearDown() override {
    set_own_command(before_);
    for (const char* variable : {"ATTUNE_TEST_FAULT", "ATTUNE_TEST_FAULT_AT"}) unsetenv(variable);
  }
  static nlohmann::json job(const std::string& problem) {
    Case what;
    what.problem = problem;
    return to_json(CheckJob{"cpu", {.plugin = test::build() + "/tests/libfaulty_plugin.so"}, {what}});
  }

  std::vector<std::string> before_;
};

TEST_F(TrialsTest, AnswerInTheOrderOfTheirJobs) {
  std::vector<nlohmann::json> jobs;
  for (int rows = 1; rows <= 5; ++rows) jobs.push_back(job(fmt::format("fwd b1 h1/1 q{} k9 d8 f32", rows)));
  const std::vector<TrialAnswer> answers = Trials({}).run_all(jobs, 3);
  ASSERT_EQ(answers.size(), jobs.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(answers[i].done);
    ASSERT_EQ(answers[i].outcomes.size(), 1u);
    EXPECT_EQ(answers[i].outcomes[0].of.problem, jobs[i].at("cases")[0].at("problem").get<std::string>());
  }
}

TEST_F(TrialsTest, RunTogether) {
  setenv("ATTUNE_TEST_FAULT", "hang", 1);
  TrialOptions options;
  options.limit_seconds = 2;
  const std::vector<nlohmann::json> jobs(6, job("fwd b1 h1/1 q2 k9 d8 f32"));
  const auto begin = std::chrono::steady_clock::now();
  Trials trials(options);
  for (const TrialAnswer& answer : trials.run_all(jobs, jobs.size())) EXPECT_THAT(answer.lost, HasSubstr("hung"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8)) << "one after the other takes 12";
}

// The plug-in counts its calls: the fifth is that of the fifth job only where all had one process.
TEST_F(TrialsTest, KeepAProcessForTheSameCodeUntilItIsHarmed) {
  setenv("ATTUNE_TEST_FAULT", "crash", 1);
  setenv("ATTUNE_TEST_FAULT_AT", "5", 1);
  const nlohmann::json asked = job("fwd b1 h1/1 q2 k9 d8 f32");
  nlohmann::json other = asked;
  other["entrant"]["name"] = "other";
  Trials kept({}, true), fresh({});
  for (int call = 1; call <= 4; ++call) EXPECT_TRUE(kept.run(asked).done);
  EXPECT_TRUE(kept.run(other).done) << "a process of its own";
  EXPECT_THAT(kept.run(asked).lost, HasSubstr("crashed: signal 6"));
  EXPECT_TRUE(kept.run(asked).done) << "another process";
  for (int call = 1; call <= 6; ++call) EXPECT_TRUE(fresh.run(asked).done);
}

TEST_F(TrialsTest, ProcessesOfManyThreadsAreKept) {
  const std::vector<nlohmann::json> jobs(4, job("fwd b1 h1/1 q2 k9 d8 f32"));
  Trials trials({}, true);
  for (int time = 0; time < 3; ++time) {
    bool beside = false;
    for (const TrialAnswer& answer : trials.run_all(jobs, 2, [&] { beside = true; })) EXPECT_TRUE(answer.done);
    EXPECT_TRUE(beside);
  }
}

// A probe's gigabyte may take longer than a step of an entrant is allowed to.
TEST(Rounds, ProbesAreNobodysStep) {
  cpu::Threads threads{attune_options{}};
  ThreadPools pools(threads);
  RoundsRequest request;
  request.problem = parse_problem("fwd b1 h1/1 q2 k9 d8 f32");
  request.problem.device_kind = DeviceKind::cpu;
  request.entrants = {{.name = "outsider", .plugin = test::build() + "/tests/libfaulty_plugin.so"}};
  request.ceilings = {{"fma"}};
  request.protocol.rounds = request.protocol.samples = 1;
  std::vector<std::optional<size_t>> made;
  const Rounds rounds =
      run_rounds(request, nullptr, pools, [&](std::optional<size_t> entrant) { made.push_back(entrant); }, {});
  EXPECT_EQ(made, (std::vector<std::optional<size_t>>{0, std::nullopt}));
  EXPECT_EQ(rounds.probes.size(), 1u);
}

}  // namespace
}  // namespace attune::lab
