// attune ladder without a GPU: what kernels/ladder/ladder.toml says, what measurements make of it, and the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "jit/nvrtc.hpp"
#include "lab/ladder/ladder_text.hpp"
#include "lab/ladder/resources.hpp"
#include "lab/ladder/unfused.hpp"
#include "lab/sets.hpp"
#include "lab/try/kernel_file.hpp"
#include "tests/lab_report/records.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

test::Outcome attune(const std::string& arguments) { return test::shell(test::build() + "/attune " + arguments); }

std::string complaint(const std::string& toml) {
  try {
    parse_ladder(toml, "mine.toml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

constexpr const char* two_rungs = R"(
[[rung]]
name = "slow"
title = "slow"
registers = 32
shared_bytes = 1024
reported_us = 100
[[rung]]
name = "attune"
title = "the library"
over = "slow"
reported_us = 50
predictions.mission = { gain = 2.0, probability = 0.9 }
)";

TEST(LadderFile, HasTwelveFilesThatAreShortAndBeginWithWhatChanges) {
  size_t kernels = 0;
  for (const auto& [name, text] : ladder_files()) {
    if (!name.ends_with(".cu")) continue;
    ++kernels;
    EXPECT_LE(std::ranges::count(text, '\n'), 250) << name;
    EXPECT_TRUE(text.starts_with("// ")) << name << ": a paragraph on what changes";
    EXPECT_THAT(text, HasSubstr("#include \"base.cuh\"\n")) << name;
    EXPECT_EQ(text.find("#include"), text.rfind("#include")) << name << ": includes its own base header alone";
    EXPECT_NE(builtin_ladder().find(name.substr(0, name.size() - 3)), nullptr) << name << " is no rung";
  }
  EXPECT_EQ(kernels, 13u) << "twelve kernels of a user, and the middle of the unfused rung";
  EXPECT_EQ(builtin_ladder().rungs.size(), 14u) << "with the library's own";
}

TEST(LadderFile, EveryRungGoesThroughTheDoorAndTakesTheProblemsItIsMeasuredAt) {
  for (const Rung& rung : builtin_ladder().rungs) {
    if (rung.name == "attune" || rung.name == unfused_rung) continue;
    const KernelFile file = parse_kernel_file(rung.name, ladder_files().at(file_of_rung(rung.name)));
    for (const char* problem : {"fwd b1 h8/8 q512 k512 d64 f16", "fwd b16 h16/16 q2048 k2048 d64 bf16 causal-br",
                                "fwd b2 h4/2 q9 k7 d128 f16"})
      EXPECT_EQ(refusal_of(file, parse_problem(problem)), "") << rung.name;
    EXPECT_NE(refusal_of(file, parse_problem("fwd b1 h1/1 q8 k8 d32 f16")), "") << rung.name;
  }
}

TEST(LadderFile, PredictsEveryStepAtBothSets) {
  EXPECT_THAT(predicted_sets(builtin_ladder()), ElementsAre("mission", "h100"));
  for (const Rung& rung : builtin_ladder().rungs) EXPECT_EQ(rung.predictions.size(), rung.over.empty() ? 0u : 2u);
}

TEST(LadderFile, ErrorsNameTheFileTheRungAndWhatIsAllowed) {
  EXPECT_EQ(complaint(two_rungs), "");
  const auto with = [](std::string from, const std::string& to) {
    std::string text = two_rungs;
    return complaint(text.replace(text.find(from), from.size(), to));
  };
  EXPECT_THAT(complaint(""), HasSubstr("mine.toml: there is no [[rung]]"));
  EXPECT_THAT(complaint("x ="), HasSubstr("mine.toml, line 1"));
  EXPECT_THAT(complaint("rung = 3"), HasSubstr("rung is no list of tables"));
  EXPECT_THAT(with("over = \"slow\"", "over = \"fast\""), HasSubstr("attune: over is 'fast'; a rung before it is"));
  EXPECT_THAT(with("probability = 0.9", "probability = 1.5"),
              HasSubstr("attune, predictions.mission: probability is 1.5; a number above 0 and below 1 is allowed"));
  EXPECT_THAT(with("predictions.mission", "predictions.nowhere"), HasSubstr("nowhere"));
  EXPECT_THAT(with("title = \"slow\"", "colour = \"slow\""), HasSubstr("slow has the key 'colour'"));
  EXPECT_THAT(with("registers = 32", "registers = 0"), HasSubstr("slow: registers is 0; a number above 0"));
  EXPECT_THAT(with("\"attune\"", "\"slow\""), HasSubstr("slow is there twice"));
  EXPECT_THAT(complaint(std::string(two_rungs) + "[[without]]\nwhat = \"x\"\nof = \"y\"\n"),
              HasSubstr("x: of is 'y', which is no rung"));
  EXPECT_THAT(complaint(std::string(two_rungs) + "[[without]]\nwhat = \"x\"\nof = \"slow\"\n"),
              HasSubstr("x: defines or lines are missing"));
}

TEST(LadderFile, SomethingTakenAwayChangesTheMacroAndTheLine) {
  for (const Without& each : builtin_ladder().without) {
    const std::string text = text_without(ladder_files().at(file_of_rung(each.of)), each);
    const KernelFile file = parse_kernel_file("x.cu", text);
    for (const auto& [name, value] : each.defines)
      EXPECT_THAT(text, HasSubstr(fmt::format("#define {} {}\n", name, value)));
    if (each.lines.contains("threads")) {
      EXPECT_EQ(file.threads, each.lines.at("threads"));
    }
    if (each.lines.contains("grid")) {
      EXPECT_EQ(file.grid, std::vector<std::string>{each.lines.at("grid")});
    }
  }
  EXPECT_THAT([] { text_without("// grid: 1\n", {"x", "y", {{"SWIZZLE", 0}}, {}}); },
              testing::ThrowsMessage<Error>(HasSubstr("y without x: the file has no '#ifndef SWIZZLE'")));
  EXPECT_THAT([] { text_without("// grid: 1\n", {"x", "y", {}, {{"threads", "1"}}}); },
              testing::ThrowsMessage<Error>(HasSubstr("the comment has no line 'threads'")));
}

constexpr const char* full = "fwd b1 h8/8 q512 k512 d64 f16";
constexpr const char* causal = "fwd b1 h8/8 q512 k512 d64 f16 causal-tl";

std::vector<std::string> mission() { return find_set("mission").problems; }

Climb climb_at(double slow_seconds, double attune_seconds, const std::string& probability = "0.9") {
  std::string text = two_rungs;
  text.replace(text.find("0.9"), 3, probability);
  static std::vector<Ladder> ladders;  // climbs point into none of it, but the reader may look
  ladders.push_back(parse_ladder(text, "mine.toml"));
  std::vector<LadderProblem> problems;
  for (const std::string& problem : mission())
    problems.push_back(
        {problem, steady_result(problem, {{"attune", attune_seconds}, {"slow", slow_seconds}}).result.measurement});
  return climb_of(ladders.back(), "mission", problems);
}

TEST(Climb, GainsAreRatiosInsideRoundsAndPredictionsAreHeldAgainstTheirInterval) {
  const Climb climb = climb_at(3e-3, 1e-3);
  ASSERT_EQ(climb.steps.size(), 2u);
  EXPECT_FALSE(climb.steps[0].gain) << "the first one is compared with none";
  EXPECT_NEAR(climb.steps[0].distance->estimate, 3, 1e-9);
  const Step& library = climb.steps[1];
  EXPECT_NEAR(library.gain->estimate, 3, 1e-9);
  EXPECT_EQ(library.gain->problems, mission().size());
  EXPECT_GE(library.gain->interval.coverage, 0.95);
  EXPECT_NEAR(*library.reported_gain, 2, 1e-9);
  EXPECT_EQ(library.outcome->came, Came::true_);
  EXPECT_EQ(climb_at(1.5e-3, 1e-3).steps[1].outcome->came, Came::false_);
}

TEST(Climb, WhatRoundsDoNotTellApartIsNotScored) {
  std::vector<LadderProblem> problems;
  Measurement measurement = steady_result(mission().front(), {{"attune", 1e-3}, {"slow", 2e-3}}).result.measurement;
  for (size_t round = 0; round < measurement.recordings[1].rounds.size(); ++round)
    measurement.recordings[1].rounds[round][0].seconds *= round % 2 == 0 ? 1.1 : 0.9;
  problems.push_back({mission().front(), measurement});
  const Ladder ladder = parse_ladder(two_rungs, "mine.toml");
  const Climb climb = climb_of(ladder, "mission", problems);
  EXPECT_EQ(climb.steps[1].outcome->came, Came::close);
  const PredictionScore score = score_of({climb});
  EXPECT_EQ(score.scored, 0u);
  EXPECT_EQ(score.close, 1u);
  EXPECT_EQ(score_text(score), "No prediction can be scored.\n");
}

TEST(Climb, BriersScoreIsTheMeanSquareOfWhatProbabilitiesMissed) {
  const std::vector<Climb> climbs{climb_at(3e-3, 1e-3, "0.9"), climb_at(1.5e-3, 1e-3, "0.7")};
  const PredictionScore score = score_of(climbs);
  EXPECT_EQ(score.scored, 2u);
  EXPECT_EQ(score.came_true, 1u);
  EXPECT_NEAR(score.brier, (0.1 * 0.1 + 0.7 * 0.7) / 2, 1e-12);
  EXPECT_THAT(score_text(score), HasSubstr("1 of 2 came true, 0 too close to call. Brier score 0.250"));
}

TEST(Climb, ARungThatWasNotTimedIsLeftOut) {
  const Ladder ladder = parse_ladder(two_rungs, "mine.toml");
  const std::string problem = mission().front();
  const Climb climb =
      climb_of(ladder, "mission", {{problem, steady_result(problem, {{"attune", 1e-3}}).result.measurement}});
  ASSERT_EQ(climb.steps.size(), 1u);
  EXPECT_FALSE(climb.steps[0].gain);
  EXPECT_FALSE(climb.steps[0].outcome);
  EXPECT_TRUE(climb_of(ladder, "mission", {}).steps.empty());
}

// One of each set where time is short: a record is verified again whenever it is read.
std::vector<std::string> recorded_problems(const char* set) {
  std::vector<std::string> problems = find_set(set).problems;
  if (test::small_budget()) problems.resize(1);
  return problems;
}

// A record as `attune ladder --evidence` writes it: each rung 1.5 times as fast as the one it is compared with, and
// whatever is taken away costs a tenth.
nlohmann::json climbed_record(const Stamps& stamps, const std::vector<const char*>& sets = {"mission", "h100"},
                              const std::string& created = "2026-12-01T12:00:00Z") {
  std::vector<SpeedResult> results;
  for (const char* set : sets)
    for (const std::string& problem : recorded_problems(set)) {
      std::map<std::string, double> seconds;
      for (const Rung& rung : builtin_ladder().rungs)
        seconds[rung.name] = rung.over.empty() ? 1e-2 : seconds.at(rung.over) / 1.5;
      std::vector<std::pair<std::string, double>> order{{"attune", seconds.at("attune")}};
      for (const Rung& rung : builtin_ladder().rungs)
        if (rung.name != "attune") order.emplace_back(rung.name, seconds.at(rung.name));
      for (const Without& each : builtin_ladder().without) order.emplace_back(each.name(), seconds.at(each.of) * 1.1);
      results.push_back(steady_result(problem, order));
    }
  return speed_record(results, {{"architecture", "sm_90a"}, {"card", "NVIDIA H200"}}, stamps, created);
}

TEST(LadderRecord, GivesTheWaterfallTheLossesAndTheScoreAgain) {
  const test::TemporaryDirectory place;
  const std::string path = save_record(climbed_record(ladder_stamps()), place.path().string());
  const auto shown = attune("ladder --from " + path);
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_THAT(shown.output,
              AllOf(HasSubstr("set mission"), HasSubstr("set h100"), HasSubstr("1.50 [1.50, 1.50]"),
                    HasSubstr("2870 us"), HasSubstr("1162 us, 1.01"), HasSubstr("the second producer"),
                    HasSubstr("1.10 [1.10, 1.10]"), HasSubstr("another card, an L4"), HasSubstr("Brier score")));
  const auto json = attune("ladder --set h100 --json --from " + path);
  EXPECT_EQ(json.status, 0);
  std::vector<nlohmann::json> lines;
  std::istringstream text(json.output);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), builtin_ladder().rungs.size() + builtin_ladder().without.size() + 1);
  EXPECT_EQ(lines[1].at("rung"), "02_block_tiling");
  EXPECT_NEAR(lines[1].at("gain").at("estimate").get<double>(), 1.5, 1e-9);
  EXPECT_EQ(lines[1].at("prediction").at("came"), "true");
  EXPECT_EQ(lines[1].at("times").size(), recorded_problems("h100").size());
  EXPECT_EQ(lines.back().at("scored"), builtin_ladder().rungs.size() - 1);
}

TEST(LadderRecord, MakesThePageAndTellsWhatHasChangedSince) {
  const test::TemporaryDirectory place;
  const std::string docs = test::repo() + "/docs", evidence = place.path().string();
  EXPECT_THAT(make_ladder_page(docs, evidence).at("ladder.md"), HasSubstr("has not been measured on a card"));
  std::filesystem::create_directory(place.path() / "ladder");
  Stamps stamps = ladder_stamps();
  stamps.at("ladder/04_fewer_barriers") = std::string(32, '0');
  save_record(climbed_record(stamps), evidence + "/ladder");
  const std::string page = make_ladder_page(docs, evidence).at("ladder.md");
  EXPECT_THAT(page, AllOf(HasSubstr("### mission"), HasSubstr("NVIDIA H200"),
                          HasSubstr("Changed since they were measured: ladder/04_fewer_barriers."),
                          Not(HasSubstr("has not been measured"))));
}

TEST(LadderPage, HasTheNewestRecordOfEveryProblem) {
  const test::TemporaryDirectory place;
  const std::string docs = test::repo() + "/docs", evidence = place.path().string();
  std::filesystem::create_directory(place.path() / "ladder");
  Stamps stamps = ladder_stamps();
  stamps.at("ladder/04_fewer_barriers") = std::string(32, '0');
  const auto save = [&](const std::vector<const char*>& sets, const std::string& day, const Stamps& of) {
    const std::string path = save_record(climbed_record(of, sets, day + "T12:00:00Z"), evidence + "/ladder");
    return path.substr(path.rfind('/') + 1);
  };
  const std::string replaced = save({"h100"}, "2026-12-01", stamps), mission = save({"mission"}, "2026-12-02", stamps),
                    newest = save({"h100"}, "2026-12-03", ladder_stamps());
  const std::string page = make_ladder_page(docs, evidence).at("ladder.md");
  EXPECT_THAT(
      page, AllOf(HasSubstr("### mission"), HasSubstr("### h100"), HasSubstr(mission), HasSubstr(newest),
                  Not(HasSubstr(replaced)), HasSubstr("Changed since they were measured: ladder/04_fewer_barriers.")));
}

TEST(LadderRecord, OthersAreRefused) {
  const test::TemporaryDirectory place;
  const std::string path = save_record(record_of({steady_result(full, {{"attune", 1e-3}})}), place.path().string());
  const auto outcome = attune("ladder --from " + path);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("is no record of the ladder: 01_minimal is nowhere in it"));
}

// Fails after a change of the evidence or of a rung's prediction: `attune report` brings the page up to date.
TEST(LadderPage, IsWhatTheEvidenceGives) {
  std::ifstream file(test::repo() + "/docs/ladder.md");
  std::ostringstream text;
  text << file.rdbuf();
  const std::string made = make_ladder_page(test::repo() + "/docs", test::repo() + "/evidence").at("ladder.md");
  EXPECT_TRUE(made == text.str()) << "run `attune report`";
}

TEST(LadderCommand, SaysWhatItNeeds) {
  const auto help = attune("ladder --help");
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.output, AllOf(HasSubstr("examples:"), HasSubstr("--evidence"), HasSubstr("--resources")));
  EXPECT_EQ(attune("ladder --set nowhere").status, 2);
  EXPECT_EQ(attune("ladder --resources --from x").status, 2);
  const auto other = attune("ladder 'fwd b1 h1/1 q8 k8 d64 f16'");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("is in none of mission, h100, which predictions are for"));
  EXPECT_EQ(attune("ladder --arch sm_80").status, 2) << "is for --resources";
  if (gpu::find_driver() == nullptr) {
    const auto none = attune("ladder");
    EXPECT_EQ(none.status, 3);
    EXPECT_THAT(none.output, HasSubstr("there is no GPU here, so that no rung can be checked or measured"));
  }
}

TEST(LadderCommand, OnACardEveryRungIsRightAndTheRecordHolds) {
  ATTUNE_REQUIRE_GPU();
  const test::TemporaryDirectory place;
  const auto outcome =
      attune(fmt::format("ladder '{}' --rounds 6 --budget 10 --json --evidence {}", full, place.path().string()));
  EXPECT_NE(outcome.status, 1) << outcome.output;  // without cuBLAS it is 3, on a noisy machine 4
  EXPECT_NE(outcome.status, 2) << outcome.output;
  std::set<std::string> right;
  std::istringstream text(outcome.output);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("{"))
      if (const nlohmann::json each = nlohmann::json::parse(line); each.contains("us") && each.at("ok") == true)
        right.insert(each.at("contender").get<std::string>());
  for (const Rung& rung : builtin_ladder().rungs)
    EXPECT_TRUE(right.contains(rung.name) || rung.name == unfused_rung) << rung.name << "\n" << outcome.output;
  for (const Without& each : builtin_ladder().without) EXPECT_EQ(right.count(each.name()), 1u) << each.name();
  EXPECT_EQ(attune("evidence verify --folder " + place.path().string()).status, 0);
}

TEST(LadderCommand, WritesFilesThatCanBeTriedAndOverwritesNoWork) {
  const test::TemporaryDirectory place;
  const std::string folder = (place.path() / "rungs").string();
  EXPECT_EQ(attune("ladder --write " + folder).status, 0);
  EXPECT_TRUE(std::filesystem::exists(folder + "/13_persistent_without_the_swizzle.cu"));
  EXPECT_EQ(attune("ladder --write " + folder).status, 0) << "the same again";
  std::ofstream(folder + "/05_eight_warps.cu") << "mine\n";
  const auto refused = attune("ladder --write " + folder);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, HasSubstr("05_eight_warps.cu: is there, and says something else"));
}

TEST(LadderResources, AreHeldAgainstTheCeilings) {
  Rung rung;
  rung.registers = 64;
  rung.shared_bytes = 1024;
  KernelResources needs;
  needs.registers = 64;
  EXPECT_EQ(over_ceiling(rung, needs), "");
  needs.registers = 65;
  EXPECT_EQ(over_ceiling(rung, needs), "65 registers, and 64 are allowed");
  needs.registers = 64;
  needs.dynamic_shared_bytes = 1000;
  needs.static_shared_bytes = 25;
  EXPECT_EQ(over_ceiling(rung, needs), "1025 bytes of shared memory, and 1024 are allowed");
  needs.complaint = "it spills";
  EXPECT_EQ(over_ceiling(rung, needs), "it spills");
}

TEST(LadderResources, EveryRungCompilesForEveryArchitectureUnderItsCeilings) {
  try {
    jit::find_nvrtc(1000);
  } catch (const Error&) {
    GTEST_SKIP() << "there is no NVRTC here";
  }
  if (test::small_budget()) GTEST_SKIP() << "the budget is small";
  for (const char* part : {"--dtype f16", "--dtype bf16 --arch sm_90a"}) {
    const auto outcome = attune(std::string("ladder --resources --json ") + part);
    EXPECT_EQ(outcome.status, 0) << outcome.output;
    size_t lines = 0;
    std::istringstream text(outcome.output);
    for (std::string line; std::getline(text, line);) {
      const nlohmann::json each = nlohmann::json::parse(line);
      EXPECT_EQ(each.at("spilled_bytes"), 0) << line;
      EXPECT_EQ(each.at("complaint"), "") << line;
      EXPECT_LE(each.at("registers"), each.at("most_registers")) << line;
      EXPECT_LE(each.at("shared_bytes"), each.at("most_shared_bytes")) << line;
      EXPECT_GT(each.at("blocks_per_sm"), 0) << line;
      ++lines;
    }
    EXPECT_EQ(lines, 13u * 2 * (std::string(part).ends_with("f16") ? 3 : 1));
  }
}

TEST(Unfused, RefusesWhatItCannotDoAndSaysWhy) {
  const auto refusal = [](const char* problem) { return unfused_refusal(parse_problem(problem)); };
  EXPECT_EQ(refusal(full), "");
  EXPECT_EQ(refusal(causal), "");
  EXPECT_THAT(refusal("fwd b1 h4/2 q8 k8 d64 f16"), HasSubstr("groups"));
  EXPECT_THAT(refusal("fwd b1 h4/4 q8 k8 d64 f32"), HasSubstr("f32"));
  EXPECT_THAT(refusal("fwd b1 h4/4 q8 k8 d20 f16"), HasSubstr("multiples of 8"));
  EXPECT_THAT(refusal("fwd b1 h4/4 q8 k8 d64 f16 w3,3"), HasSubstr("no features but"));
  EXPECT_THAT(refusal("fwd b1 h4/4 q8 k0 d64 f16"), HasSubstr("at least one row and one key"));
  EXPECT_THAT(refusal("fwd b1 h4/4 q8 k8 d64 f16 bhsd"), HasSubstr("dense and bshd"));
}

TEST(Unfused, PlacesInTheWorkspaceDoNotOverlap) {
  const UnfusedPlan plan = unfused_plan(parse_problem("fwd b2 h3/3 q9 k20 d64 f16"));
  EXPECT_EQ(plan.scores.d.step, 24) << "keys in multiples of 8";
  EXPECT_EQ(plan.score_step, 3 * 9 * 24);
  EXPECT_GE(plan.weights_at, plan.scores_at + 2u * 3 * 9 * 24 * 4);
  EXPECT_GE(plan.lse_at, plan.weights_at + 2u * 3 * 9 * 24 * 2);
  EXPECT_GE(plan.gemm_at, plan.lse_at + 2u * 3 * 9 * 4);
  EXPECT_EQ(plan.workspace_bytes, plan.gemm_at + gemm_workspace_bytes);
}

TEST(Unfused, ALibraryThatIsNotOneIsNamed) {
  EXPECT_THAT([] { CublasLt("nowhere.so"); }, testing::ThrowsMessage<Error>(HasSubstr("nowhere.so")));
  EXPECT_THAT([] { CublasLt(test::build() + "/tests/libfaulty_plugin.so"); },
              testing::ThrowsMessage<Error>(HasSubstr("has no cublasLtCreate")));
}

TEST(Unfused, ProposalsThatTheLibraryCallsUnusableAreLeftOut) {
  const CublasLt lt(test::build() + "/tests/libfake_cublaslt.so");
  const UnfusedPlan plan = unfused_plan(parse_problem(full));
  const std::vector<GemmAlgorithm> all = lt.algorithms(plan.scores, 1000, most_algorithms);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].data[0], 1u);
  EXPECT_EQ(all[1].data[0], 3u);
  EXPECT_EQ(all[0].workspace_bytes, 500u) << "the limit arrives";
}

}  // namespace
}  // namespace attune::lab
