// What a length that was never seen before costs before its kernel starts: the bar of docs/runtime.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "dispatch/context.hpp"
#include "dispatch/select.hpp"
#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "lab/sets.hpp"

#include "tests/support/sanitizers.hpp"

namespace attune::sm90 {
namespace {

// Everything but loading: a kernel is loaded once, however many lengths it serves.
double seconds_to_plan(const Problem& problem, const Context& context) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const Selection selection = select(problem, context, "");
  auto time = Clock::now() - begin;
  if (selection.chosen != nullptr) {
    const auto& kernel = dynamic_cast<const gpu::GpuKernel&>(*selection.chosen);
    const gpu::Choice choice = kernel.choice_on(problem, context.gpu().properties(0));  // which select() has made, too
    const auto second_begin = Clock::now();
    EXPECT_FALSE(choice.recipe().steps.empty());
    time += Clock::now() - second_begin;
  }
  return std::chrono::duration<double>(time).count();
}

TEST(Planning, EveryProblemOfTheNamedSetsTakesLessThanTheBar) {
  if (test::under_sanitizers) GTEST_SKIP() << "the time of a build with sanitizers says nothing";
  const Context context(attune_options{}, std::make_unique<gpu::Runtime>(std::vector{gpu::typical_device("sm_90a")}));
  constexpr double bar_seconds = 0.5e-3;
  for (const lab::ProblemSet& set : lab::builtin_sets())
    for (const std::string& text : set.problems) {
      Problem problem = parse_problem(text);
      problem.device_kind = DeviceKind::cuda;
      double least = 1;  // a machine that is busy with something else takes longer now and then
      for (int i = 0; i < 20 && least > bar_seconds; ++i) least = std::min(least, seconds_to_plan(problem, context));
      EXPECT_LE(least, bar_seconds) << set.name << ": " << text;
    }
}

}  // namespace
}  // namespace attune::sm90
