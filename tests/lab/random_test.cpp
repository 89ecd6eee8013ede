// Random problems through the gate on every CPU kernel: a new seed each run, printed; ATTUNE_SEED repeats one. And the
// cases that failed once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "lab/check/random_problem.hpp"
#include "lab/check/report.hpp"
#include "lab/check/shrink.hpp"
#include "tests/lab/lab_fixture.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

class RandomProblems : public Lab {
 protected:
  static uint64_t first_seed() {
    if (const char* given = std::getenv("ATTUNE_SEED")) return std::strtoull(given, nullptr, 10);
    return std::random_device()();
  }

  std::string explain(const Outcome& outcome) {
    Checker check = checker();
    return failure_text(outcome, shrink(outcome.of, [&](const Case& c) { return !check.check(c).ok(); }));
  }
};

TEST_F(RandomProblems, PassTheGateOnEveryKernel) {
  const int cases = test::small_budget() ? 100 : 2000;
  const uint64_t seed = first_seed();
  std::cout << "seed " << seed << ": attune check --random " << cases << " --seed " << seed << " --kernel all\n";
  const std::vector<std::string> kernels = executor_->kernels(forward_operation);
  ASSERT_GE(kernels.size(), 3u);
  Checker check = checker();
  Worst worst;
  int failures = 0;
  int64_t checks = 0;
  for (int i = 0; i < cases && failures < 5; ++i) {
    for (const Outcome& outcome : check.check(random_case(seed + static_cast<uint64_t>(i)), kernels)) {
      if (!outcome.unsupported.empty()) continue;
      ++checks;
      worst.look_at(outcome);
      if (outcome.ok()) continue;
      ++failures;
      ADD_FAILURE() << explain(outcome);
    }
  }
  EXPECT_GE(checks, cases * 3);
  std::cout << checks << " checks; " << worst.text() << "\n";
}

TEST_F(RandomProblems, AreReproducibleAndVaried) {
  uint32_t features = 0;
  int split_sinks = 0, bias_backwards = 0, masks_backwards = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Case a = random_case(seed), b = random_case(seed);
    EXPECT_EQ(reproducer(a), reproducer(b));
    const Problem p = parse_problem(a.problem);
    EXPECT_LE(useful_flops(p), 3e6);
    features |= p.features;
    split_sinks += p.has(ATTUNE_SINK) && p.seq_k >= 1000 ? 1 : 0;
    bias_backwards += p.has(ATTUNE_BIAS) && a.storage == Storage::reversed ? 1 : 0;
    masks_backwards += p.has(ATTUNE_MASK) && a.storage == Storage::reversed ? 1 : 0;
  }
  constexpr uint32_t all = ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SINK | ATTUNE_BIAS | ATTUNE_MASK | ATTUNE_PACKED |
                           ATTUNE_USED_Q | ATTUNE_USED_K | ATTUNE_LSE;
  EXPECT_EQ(features & all, all);
  EXPECT_GT(split_sinks, 0);
  EXPECT_GT(bias_backwards, 0);
  EXPECT_GT(masks_backwards, 0);
}

// Each line of regressions.txt: input kind, storage, seed, problem.
TEST_F(RandomProblems, RegressionsStayFixed) {
  std::ifstream file(test::repo() + "/tests/lab/regressions.txt");
  ASSERT_TRUE(file);
  Checker check = checker();
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string input, storage;
    Case c;
    words >> input >> storage >> c.seed >> std::ws;
    std::getline(words, c.problem);
    c.input = input_kind_from(input);
    c.storage = storage_from(storage);
    for (const Outcome& outcome : check.check(c, executor_->kernels(*parse_problem(c.problem).operation)))
      EXPECT_TRUE(outcome.ok()) << failure_text(outcome, outcome.of);
    ++cases;
  }
  EXPECT_GE(cases, 5);
}

}  // namespace
}  // namespace attune::lab
