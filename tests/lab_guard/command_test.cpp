// attune guard as a user meets it: exit statuses and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

// Long enough that a call of a twentieth of the time of another is told apart on a busy machine, from another run too.
constexpr const char* problem = " --backend cpu --budget 1 'fwd b1 h2/2 q64 k128 d64 f32'";
const std::string library = test::build() + "/libattune.so", folder = test::build() + "/tests/";

test::Outcome guard(const std::string& arguments) {
  return test::shell("ATTUNE_THREADS=1 ATTUNE_TEST_LIBRARY=" + library + " " + test::build() + "/attune guard " +
                     arguments);
}

TEST(GuardCommand, ASlowerLibraryIs1) {
  const auto slower = guard("--against " + library + " --library " + folder + "libguard_slow.so" + problem);
  EXPECT_EQ(slower.status, 1) << slower.output;
  EXPECT_THAT(slower.output, HasSubstr("slower: 0 rows hold, 1 slower, 0 unclear"));
}

TEST(GuardCommand, AQuickerLibraryPasses) {
  const auto quicker = guard("--against " + folder + "libguard_slow.so" + problem);
  EXPECT_EQ(quicker.status, 0) << quicker.output;
  EXPECT_THAT(quicker.output, HasSubstr("holds: 1 row hold, 0 slower, 0 unclear"));
}

// A machine that others load while this runs can hold up one side for a whole run, but hardly three times.
TEST(GuardCommand, TheSameLibraryIsNotSlower) {
  std::string outputs;
  for (int i = 0; i < 3; ++i) {
    const auto same = guard("--against " + library + problem);
    if (same.status == 0 || same.status == 4) return;
    outputs += same.output;
  }
  FAIL() << outputs;
}

TEST(GuardCommand, AProblemThatIsNoLongerTakenIs1) {
  const auto lost = guard("--against " + library + " --library " + folder + "libguard_refuses.so" + problem);
  EXPECT_EQ(lost.status, 1);
  EXPECT_THAT(lost.output, HasSubstr("this library takes no problem"));
  const auto gained = guard("--against " + folder + "libguard_refuses.so" + problem);
  EXPECT_EQ(gained.status, 4) << "nothing was compared";
  EXPECT_THAT(gained.output, HasSubstr("nothing to compare with"));
}

TEST(GuardCommand, BaselinesGoOutAndComeIn) {
  const test::TemporaryDirectory place;
  const std::string file = (place.path() / "baseline.json").string();
  const auto saved = guard("--save " + file + " --library " + folder + "libguard_slow.so" + problem);
  EXPECT_EQ(saved.status, 0) << saved.output;
  const auto quicker = guard("--baseline " + file + " --backend cpu --budget 1 --json");
  EXPECT_EQ(quicker.status, 0) << quicker.output;
  std::istringstream lines(quicker.output);
  std::string line;
  std::getline(lines, line);
  const auto row = nlohmann::json::parse(line);
  EXPECT_EQ(row.at("problem"), "fwd b1 h2/2 q64 k128 d64 f32");
  EXPECT_EQ(row.at("verdict"), "holds");
  EXPECT_LT(row.at("ratio"), 0.9);
  std::getline(lines, line);
  EXPECT_EQ(nlohmann::json::parse(line).at("guard"), "holds");
  const auto other = guard("--baseline " + file + " --backend cpu --budget 1 'fwd b1 h1/1 q8 k8 d8 f32'");
  EXPECT_EQ(other.status, 4);
  EXPECT_THAT(other.output, HasSubstr("the baseline does not have it"));
}

TEST(GuardCommand, ReplaysARecord) {
  const std::string record = test::repo() + "/evidence/speed-20261118-0515fe5d.json";
  EXPECT_EQ(guard("--replay " + record).status, 0);
  EXPECT_EQ(guard("--replay " + record + " --planted 0.02").status, 1);
}

TEST(GuardCommand, BadInputIs2) {
  for (const char* arguments : {"", "--against /nonexistent.so", "--baseline /nonexistent.json",
                                "--planted 0.02 --save x", "--replay /nonexistent.json", "--against a --baseline b",
                                "--policy /nonexistent.toml --save x", "--replay x --planted 7"})
    EXPECT_EQ(guard(arguments).status, 2) << arguments;
}

}  // namespace
}  // namespace attune::lab
