// The two files of the guard: its margins, and a stored baseline.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "lab/guard/baseline.hpp"
#include "lab/guard/policy.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
    return error.what();
  }
  return "nothing";
}

const std::string margins =
    "[row]\nmargin = 0.02\n[set]\nmargin = 0.01\n[unclear]\nshare = 0.2\n[stored]\nmargin = 0.05\n";

TEST(GuardPolicy, IsRead) {
  const GuardPolicy policy = read_guard_policy(
      margins + "[[exception]]\nproblem = 'fwd b1 h1/1 q8 k8 d8 f16'\nmargin = 0.1\nreason = 'short'\n", "file");
  EXPECT_EQ(policy.row_margin, 0.02);
  EXPECT_EQ(policy.stored_margin, 0.05);
  ASSERT_NE(policy.exception_for("fwd b1 h1/1 q8 k8 d8 f16"), nullptr);
  EXPECT_EQ(policy.exception_for("fwd b1 h1/1 q8 k8 d8 f16")->reason, "short");
  EXPECT_EQ(policy.exception_for("fwd b1 h1/1 q9 k8 d8 f16"), nullptr);
  EXPECT_NO_THROW(default_guard_policy());
}

TEST(GuardPolicy, SaysWhatIsWrongWithAFile) {
  const auto of = [](const std::string& toml) { return complaint([&] { read_guard_policy(toml, "mine.toml"); }); };
  EXPECT_THAT(of("[row"), HasSubstr("mine.toml, line 1"));
  EXPECT_THAT(of(""), HasSubstr("mine.toml, [row]: is missing"));
  EXPECT_THAT(of(margins + "[rows]\nmargin = 1\n"), HasSubstr("the key 'rows' is not known"));
  EXPECT_THAT(of("[row]\nmargin = 1.5\n"), HasSubstr("margin is 1.5; it must be a number between 0 and 1"));
  EXPECT_THAT(of("[row]\nmargin = -0.1\n"), HasSubstr("margin is -0.1"));
  EXPECT_THAT(of("[row]\nmargin = nan\n"), HasSubstr("margin is nan"));
  EXPECT_THAT(of("[row]\nmargin = 'wide'\n"), HasSubstr("missing or no number"));
  EXPECT_THAT(of(margins + "[[exception]]\nproblem = 'fwd b1 h1/1 q8 k8 d8 f16'\nmargin = 0.1\n"),
              HasSubstr("reason is missing"));
  EXPECT_THAT(of(margins + "[[exception]]\nproblem = 'fwd'\nmargin = 0.1\nreason = 'x'\n"), HasSubstr("fwd"));
  EXPECT_THAT(of(margins + "[exception]\nmargin = 0.1\n"), HasSubstr("write [[exception]]"));
}

Baseline made() {
  return {"2026-01-01T00:00:00Z",
          "cpu",
          {{"processor", "a"}, {"cpus", "2"}},
          {{"fwd b1 h1/1 q8 k8 d8 f16", {{1e-5, 2e-5, 4e-5}, {15000, 30000, 60000}}}}};
}

TEST(GuardBaseline, ComesBackAsItWasSaved) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder.path() / "baseline.json").string();
  save_baseline(made(), path);
  const Baseline read = load_baseline(path);
  EXPECT_EQ(to_json(read), to_json(made()));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  const json stored = to_json(made());
  EXPECT_EQ(stored.at("results").begin().value().at("median_us"), 20.0);
}

TEST(GuardBaseline, SaysWhatIsWrongWithAFile) {
  const json good = to_json(made());
  const auto of = [](const json& changed) { return complaint([&] { baseline_from_json(changed, "b.json"); }); };
  EXPECT_EQ(of(good), "nothing");
  const auto without = [&](const char* key) {
    json changed = good;
    changed.erase(key);
    return of(changed);
  };
  for (const char* key : {"schema", "version", "created", "mode", "environment", "results"})
    EXPECT_THAT(without(key), HasSubstr(std::string(key) + " is missing"));
  const auto with = [&](const char* pointer, const json& value) {
    json changed = good;
    changed[json::json_pointer(pointer)] = value;
    return of(changed);
  };
  const std::string row = "/results/fwd b1 h1~11 q8 k8 d8 f16/";
  EXPECT_THAT(with("/version", 2), HasSubstr("is no attune-baseline of version 1"));
  EXPECT_THAT(with((row + "median_us").c_str(), 19), HasSubstr("median_us is 19; the rounds say 20"));
  EXPECT_THAT(with((row + "rounds_us").c_str(), {1, -2}), HasSubstr("-2 is no number above 0"));
  EXPECT_THAT(with((row + "rounds_cycles").c_str(), {1, 2}), HasSubstr("2 rounds in cycles and 3 in time"));
  EXPECT_THAT(with("/results", json::object()), HasSubstr("results is empty"));
  EXPECT_THAT(of(json::array()), HasSubstr("schema is missing"));
  EXPECT_THAT(complaint([] { load_baseline("/nonexistent.json"); }), HasSubstr("cannot be read"));
  EXPECT_THAT(complaint([] { save_baseline(made(), "/nonexistent/b.json"); }), HasSubstr("cannot be written"));
}

TEST(GuardBaseline, SpeaksForItsMachineAndModeOnly) {
  EXPECT_EQ(incomparable(made(), {{"processor", "a"}, {"cpus", "2"}, {"system", "other"}}, "cpu"), "");
  EXPECT_THAT(incomparable(made(), {{"processor", "b"}, {"cpus", "2"}}, "cpu"), HasSubstr("its processor was a"));
  EXPECT_THAT(incomparable(made(), {{"processor", "a"}, {"cpus", "4"}}, "cpu"), HasSubstr("its cpus was 2"));
  EXPECT_THAT(incomparable(made(), {{"processor", "a"}, {"cpus", "2"}}, "cold"), HasSubstr("in the mode cpu"));
  EXPECT_THAT(incomparable(made(), {{"processor", "a"}, {"cpus", "2"}, {"card", "H200"}}, "cpu"),
              HasSubstr("its card was none, here it is H200"));
  Baseline on_card = made();
  on_card.environment["card"] = "H200";
  EXPECT_EQ(incomparable(on_card, {{"processor", "b"}, {"card", "H200"}}, "cpu"), "");
}

}  // namespace
}  // namespace attune::lab
