// Code from outside as the command meets it: whatever is wrong with it is found before it is timed, and costs its own
// row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/budget.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* problem = " --backend cpu 'fwd b1 h2/2 q20 k30 d16 f32 causal-br'";
constexpr const char* few = " --rounds 3 --samples 1 --budget 0.2 --limit 2";
const std::string plugin = test::build() + "/tests/libfaulty_plugin.so";
const std::string library = test::build() + "/tests/libfaulty_library.so";

test::Outcome attune(const std::string& arguments, const std::string& fault = "") {
  return test::shell("ATTUNE_TEST_LIBRARY=" + test::build() + "/libattune.so " + fault + " " + test::build() +
                     "/attune " + arguments);
}

std::vector<json> objects(const test::Outcome& outcome) {
  std::vector<json> lines;
  std::istringstream text(outcome.output);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("{")) lines.push_back(json::parse(line));
  return lines;
}

struct Fault {
  const char *name, *kind, *said;
};
// The mask is a wrong one at a problem with more keys than queries.
constexpr Fault faults[] = {{"zeros", "wrong", "units of its row"},
                            {"mask", "wrong", ""},
                            {"nan", "wrong", ""},
                            {"outside", "wrong", "written"},
                            {"crash", "lost", "crashed: signal 6"},
                            {"hang", "lost", "hung: one step took longer than 2 s"}};

class Outside : public testing::TestWithParam<std::tuple<Fault, const char*>> {
 protected:
  const Fault& fault() const { return std::get<0>(GetParam()); }
  std::string option() const {
    const std::string name = std::get<1>(GetParam());
    return name + " " + (name == "--plugin" ? plugin : library);
  }
  std::string environment() const { return std::string("ATTUNE_TEST_FAULT=") + fault().name; }
};

TEST_P(Outside, IsNotTimedByBenchAndTheOthersAre) {
  if (test::small_budget()) GTEST_SKIP() << "the budget is small";
  const auto outcome = attune("bench --json " + option() + few + problem, environment());
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  const std::vector<json> lines = objects(outcome);
  ASSERT_EQ(lines.size(), 2u) << outcome.output;
  EXPECT_EQ(lines[0].at("not_timed"), fault().kind) << outcome.output;
  EXPECT_EQ(lines[0].at("ok"), false);
  EXPECT_FALSE(lines[0].contains("us"));
  EXPECT_THAT(lines[0].at("failure").get<std::string>(), HasSubstr(fault().said));
  EXPECT_TRUE(lines[1].contains("us")) << "the library's own row is there";
}

TEST_P(Outside, FailsTheCheckInItsWords) {
  const auto outcome = attune("check " + option() + " --limit 2" + problem, environment());
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("FAIL"), HasSubstr(fault().said), HasSubstr(option())));
}

INSTANTIATE_TEST_SUITE_P(Faults, Outside,
                         testing::Combine(testing::ValuesIn(faults), testing::Values("--plugin", "--against")),
                         [](const auto& chosen) {
                           const std::string option = std::get<1>(chosen.param);
                           return std::string(std::get<0>(chosen.param).name) + "_" + option.substr(2);
                         });

TEST(OutsideCode, ThatIsRightIsTimed) {
  for (const std::string& option : {"--plugin " + plugin, "--against " + library}) {
    const auto outcome = attune("bench --json " + option + few + problem);
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 4) << outcome.output;
    const std::vector<json> lines = objects(outcome);
    ASSERT_EQ(lines.size(), 2u) << outcome.output;
    EXPECT_EQ(lines[1].at("ok"), true);
    EXPECT_GT(lines[1].at("us"), 0.0);
    EXPECT_TRUE(lines[1].at("max_ulp").is_number()) << "it was judged";
    EXPECT_TRUE(lines[1].at("relative_std").is_number());
    EXPECT_EQ(attune("check " + option + " --input all" + problem).status, 0);
  }
}

TEST(OutsideCode, ThatFailsOnlyWhileItIsTimedCostsItsOwnRow) {
  if (test::small_budget()) GTEST_SKIP() << "the budget is small";
  for (const char* fault : {"crash", "hang", "exit"}) {
    const auto outcome = attune("bench --json --plugin " + plugin + few + problem,
                                std::string("ATTUNE_TEST_FAULT_AT=5 ATTUNE_TEST_FAULT=") + fault);
    EXPECT_EQ(outcome.status, 1) << outcome.output;
    const std::vector<json> lines = objects(outcome);
    ASSERT_EQ(lines.size(), 2u) << outcome.output;
    EXPECT_EQ(lines[0].at("contender"), "outsider");
    EXPECT_THAT(lines[0].at("failure").get<std::string>(), HasSubstr("while it was timed"));
    EXPECT_TRUE(lines[1].contains("us"));
  }
}

TEST(OutsideCode, MayWriteNeitherInputsNorBesideItsWorkspace) {
  for (const auto& [fault, said] :
       {std::pair("input", "an input was written"), std::pair("workspace", "beside the workspace")}) {
    const auto outcome = attune("check --plugin " + plugin + problem, std::string("ATTUNE_TEST_FAULT=") + fault);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.output, HasSubstr(said));
  }
}

TEST(OutsideCode, ThatRefusesIsNamedAndTheOthersGoOn) {
  const auto outcome =
      attune("bench --plugin " + plugin + few + problem, "ATTUNE_TEST_FAULT=refuse ATTUNE_TEST_FAULT_AT=0");
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("refused: " + plugin + ": fwd b1 h2/2 q20 k30 d16 f32 causal-br: outsider: float32"));
  EXPECT_THAT(outcome.output, HasSubstr("cpu/"));
}

TEST(OutsideCode, TwoVersionsOfOnePluginStandSideBySide) {
  const test::TemporaryDirectory place;
  const std::string copy = (place.path() / "libnewer.so").string();
  std::filesystem::copy_file(plugin, copy);
  const auto outcome = attune("bench --json --plugin " + plugin + " --plugin " + copy + few + problem);
  const std::vector<json> lines = objects(outcome);
  ASSERT_EQ(lines.size(), 3u) << outcome.output;
  EXPECT_EQ(lines[1].at("contender"), "outsider (" + plugin + ")");
  EXPECT_EQ(lines[2].at("contender"), "outsider (" + copy + ")");
}

TEST(OutsideCode, OptionsThatCannotBeAreErrors) {
  const auto twice = attune("bench --plugin " + plugin + " --plugin " + plugin + problem);
  EXPECT_EQ(twice.status, 2);
  EXPECT_THAT(twice.output, HasSubstr("is given twice"));
  EXPECT_THAT(attune("check --plugin /nowhere.so").output, HasSubstr("--plugin /nowhere.so: there is no such file"));
  EXPECT_EQ(attune("check --plugin " + plugin + " --oracle all").status, 2);
  EXPECT_EQ(attune("check --plugin " + plugin + " --all").status, 2);
  const auto callable = attune("check --callable nothing");
  EXPECT_EQ(callable.status, 2);
  EXPECT_THAT(callable.output, HasSubstr("module:function"));
  const auto price = attune(std::string("bench --price 3") + few + problem);
  EXPECT_EQ(price.status, 2);
  EXPECT_THAT(price.output, HasSubstr("--price is 3 for an hour of a GPU"));
}

TEST(OutsideCode, ARefusedProblemIsNamedAndTheOthersGoOn) {
  const auto outcome = attune(std::string("bench --json --kernel any/fwd --kernel cpu/portable") + few + problem);
  EXPECT_EQ(outcome.status, 3) << outcome.output;
  const std::vector<json> lines = objects(outcome);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("not_timed"), "refused");
  EXPECT_EQ(lines[1].at("kernel"), "cpu/portable");
}

TEST(Trial, IsForOtherCommands) {
  const auto outcome = test::shell(test::build() + "/attune trial 1 </dev/null");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("standard input has no job"));
  EXPECT_THAT(test::shell(test::build() + "/attune --help").output, testing::Not(HasSubstr("trial")));
}

}  // namespace
}  // namespace attune::lab
