// Each deliberately wrong kernel is caught by the gate or an oracle, at the very checks that `attune check --all`
// makes; the same kernel without a mistake passes them all.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "lab/check/backend.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "tests/mutants/wrong_kernel.hpp"
#include "tests/support/budget.hpp"

namespace attune::lab {
namespace {

using mutants::Mistake;

// Kernels are registered once per program.
void register_mutants() {
  static const bool done = [] {
    register_kernel(std::make_unique<mutants::WrongKernel>(Mistake::none));
    for (const Mistake mistake : mutants::all_mistakes)
      register_kernel(std::make_unique<mutants::WrongKernel>(mistake));
    return true;
  }();
  (void)done;
}

std::string kernel_of(Mistake mistake) { return "mutant/" + std::string(mutants::name_of(mistake)); }

// What caught each mistake, and what the kernel without one failed. One pass over the plan: the inputs and the float64
// reference of a check are made once for all kernels that are still at large.
struct Hunt {
  std::map<Mistake, Outcome> caught;
  std::map<Mistake, int> checks;  // until it was caught
  std::vector<std::string> control_failures;
  int control_checks = 0;

  Hunt() {
    register_mutants();
    cpu::Threads threads(attune_options{});
    Backend backend = std::move(make_backends(threads).back());
    std::vector<Mistake> at_large(mutants::all_mistakes.begin(), mutants::all_mistakes.end());
    for (const PlannedCheck& planned : plan_checks(*backend.executor, backend.all_budget, 1)) {
      if (planned.kernels.size() == 1) continue;  // for the library's own choice alone
      std::vector<std::string> kernels{kernel_of(Mistake::none)};
      for (const Mistake mistake : at_large) kernels.push_back(kernel_of(mistake));
      Checker checker(*backend.executor, *backend.reference, threads, rows(planned));
      const std::vector<Outcome> outcomes = checker.check(planned.what, kernels);
      ++control_checks;
      if (!outcomes[0].ok()) control_failures.push_back(line_of(outcomes[0]) + "\n" + outcomes[0].judgement.failure);
      std::vector<Mistake> left;
      for (size_t i = 0; i < at_large.size(); ++i) {
        ++checks[at_large[i]];
        if (outcomes[i + 1].ok())
          left.push_back(at_large[i]);
        else
          caught[at_large[i]] = outcomes[i + 1];
      }
      at_large = left;
    }
  }

  // Under sanitizers every row would take minutes.
  static RowPolicy rows(const PlannedCheck& planned) { return test::small_budget() ? RowPolicy{0, 64} : planned.rows; }
};

const Hunt& hunt() {
  static const Hunt instance;
  return instance;
}

class Mutants : public testing::TestWithParam<Mistake> {};

TEST_P(Mutants, AreCaught) {
  const auto found = hunt().caught.find(GetParam());
  ASSERT_NE(found, hunt().caught.end()) << "passed all " << hunt().control_checks << " checks";
  EXPECT_EQ(found->second.unsupported, "");
  EXPECT_NE(found->second.judgement.failure, "");
  std::cout << "caught by check " << hunt().checks.at(GetParam()) << ": " << reproducer(found->second.of) << "\n  "
            << found->second.judgement.failure << "\n";
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::ValuesIn(mutants::all_mistakes),
                         [](const auto& test) { return std::string(mutants::name_of(test.param)); });

TEST(MutantControl, PassesWithoutAMistake) {
  EXPECT_GT(hunt().control_checks, 400);
  for (const std::string& failure : hunt().control_failures) ADD_FAILURE() << failure;
}

// The command with a wrong kernel in it: status, lines on standard output.
std::pair<int, std::vector<nlohmann::json>> command(const std::vector<std::string>& arguments) {
  register_mutants();
  CLI::App app;
  int status = -1;
  add_check(app, status);
  add_bench(app, status);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  testing::internal::CaptureStdout();
  app.parse(reversed);
  std::istringstream lines(testing::internal::GetCapturedStdout());
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::json::parse(line));
  return {status, objects};
}

TEST(MutantCommand, CheckFailsAndSaysHowToRepeatIt) {
  const auto [status, lines] = command({"check", "--backend", "cpu", "--json", "--kernel", "mutant/lost_key_tile",
                                        "fwd b2 h4/2 q96 k200 d64 f16 causal-br sink"});
  EXPECT_EQ(status, exit_failed_check);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("ok"), false);
  EXPECT_NE(lines[0].at("failure"), "");
  const std::string reproduce = lines[0].at("reproduce");
  EXPECT_EQ(reproduce, "attune check 'fwd b1 h1/1 q1 k65 d1 f16' --kernel mutant/lost_key_tile --input normal --seed 1")
      << "65 keys are the fewest that have a second tile";
}

TEST(MutantCommand, WhatIsWrongIsNotTimed) {
  const auto [status, lines] = command(
      {"bench", "--backend", "cpu", "--json", "--kernel", "mutant/lost_key_tile", "fwd b1 h1/1 q8 k100 d16 f16"});
  EXPECT_EQ(status, exit_failed_check);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("ok"), false);
  EXPECT_FALSE(lines[0].contains("us"));
}

}  // namespace
}  // namespace attune::lab
