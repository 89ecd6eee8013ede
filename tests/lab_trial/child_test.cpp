// Processes for code from outside: several at once.
#include "lab/trial/child.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lab/trial/places.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

class Trials : public testing::Test {
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

TEST_F(Trials, AnswerInTheOrderOfTheirJobs) {
  std::vector<nlohmann::json> jobs;
  for (int rows = 1; rows <= 5; ++rows) jobs.push_back(job(fmt::format("fwd b1 h1/1 q{} k9 d8 f32", rows)));
  const std::vector<TrialAnswer> answers = run_trials(jobs, {}, 3);
  ASSERT_EQ(answers.size(), jobs.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_TRUE(answers[i].done);
    ASSERT_EQ(answers[i].outcomes.size(), 1u);
    EXPECT_EQ(answers[i].outcomes[0].of.problem, jobs[i].at("cases")[0].at("problem"));
  }
}

TEST_F(Trials, RunTogether) {
  setenv("ATTUNE_TEST_FAULT", "hang", 1);
  TrialOptions options;
  options.limit_seconds = 2;
  const std::vector<nlohmann::json> jobs(6, job("fwd b1 h1/1 q2 k9 d8 f32"));
  const auto begin = std::chrono::steady_clock::now();
  for (const TrialAnswer& answer : run_trials(jobs, options, jobs.size())) EXPECT_THAT(answer.lost, HasSubstr("hung"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8)) << "one after the other takes 12";
}

}  // namespace
}  // namespace attune::lab
