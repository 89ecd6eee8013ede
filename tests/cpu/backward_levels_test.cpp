// Every instruction-set level computes right gradients; the other tests see the best one of the machine.
#include <gtest/gtest.h>

#include "lab/check/report.hpp"
#include "lab/sets.hpp"
#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

TEST(BackwardLevels, AreRight) {
  int tried = 0, checks = 0;
  for (const cpu::Level* level : cpu::levels()) {
    if (!cpu::refusal(*level).empty()) continue;
    const LevelCap cap(level->name);
    cpu::Threads threads{attune_options{}};
    const auto executor = lab::make_cpu_executor();
    const auto reference = lab::make_cpu_reference(threads);
    lab::Checker checker(*executor, *reference, threads);
    for (const std::string& problem : lab::find_set("backward").problems)
      for (const lab::InputKind kind : {lab::InputKind::normal, lab::InputKind::denormals}) {
        if (checks++ % (small_budget() ? 5 : 1) != 0) continue;
        const lab::Outcome outcome = checker.check({problem, "", kind, 1, lab::Storage::odd, std::nullopt});
        EXPECT_TRUE(outcome.ok()) << level->name << ": " << lab::failure_text(outcome, outcome.of);
      }
    EXPECT_EQ(&cpu::best_level(), level) << "or another one was tried";
    ++tried;
  }
  EXPECT_GE(tried, 1);
}

}  // namespace
}  // namespace attune::test
