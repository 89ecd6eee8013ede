// Each deliberately wrong kernel is caught by the gate or an oracle, at the very checks that `attune check --all`
// makes; the same kernel without a mistake passes them all.
#include <gtest/gtest.h>

#include <map>

#include "lab/check/backend.hpp"
#include "lab/check/report.hpp"
#include "tests/mutants/wrong_kernel.hpp"

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

class Mutants : public testing::TestWithParam<Mistake> {
 protected:
  Mutants() : threads_(attune_options{}) {
    register_mutants();
    backend_ = std::move(make_backends(threads_).back());
  }

  // The checks of --all that every kernel gets, in its order.
  std::vector<PlannedCheck> plan() const {
    std::vector<PlannedCheck> plan;
    for (PlannedCheck& check : plan_checks(*backend_.executor, backend_.all_budget, 1))
      if (check.kernels.size() > 1) plan.push_back(std::move(check));
    return plan;
  }

  Outcome check(PlannedCheck planned, Mistake mistake) {
    Checker checker(*backend_.executor, *backend_.reference, threads_, planned.rows);
    planned.what.kernel = "mutant/" + std::string(mutants::name_of(mistake));
    return checker.check(planned.what);
  }

  cpu::Threads threads_;
  Backend backend_;
};

TEST_P(Mutants, AreCaught) {
  int checks = 0;
  for (const PlannedCheck& planned : plan()) {
    const Outcome outcome = check(planned, GetParam());
    ASSERT_EQ(outcome.unsupported, "");
    ++checks;
    if (outcome.ok()) continue;
    EXPECT_NE(outcome.judgement.failure, "");
    std::cout << "caught by check " << checks << ", " << planned.group << ": " << reproducer(outcome.of) << "\n  "
              << outcome.judgement.failure << "\n";
    return;
  }
  FAIL() << "passed all " << checks << " checks";
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::ValuesIn(mutants::all_mistakes),
                         [](const auto& test) { return std::string(mutants::name_of(test.param)); });

class MutantControl : public Mutants {};

TEST_P(MutantControl, PassesWithoutAMistake) {
  int checks = 0;
  for (const PlannedCheck& planned : plan()) {
    const Outcome outcome = check(planned, GetParam());
    EXPECT_TRUE(outcome.ok()) << line_of(outcome) << "\n" << outcome.judgement.failure;
    ++checks;
  }
  EXPECT_GT(checks, 400);
}

INSTANTIATE_TEST_SUITE_P(All, MutantControl, testing::Values(Mistake::none),
                         [](const auto& test) { return std::string(mutants::name_of(test.param)); });

}  // namespace
}  // namespace attune::lab
