// Kernel any/bwd on the CPU, by the emulator, against the gate for gradients. On a GPU `attune check --kernel any/bwd`
// does the same with the compiled kernel.
#include "tests/any/emulated_bwd.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "lab/check/checker.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/sets.hpp"
#include "tests/support/budget.hpp"

namespace attune {
namespace {

using lab::Case;
using lab::InputKind;
using lab::Oracle;
using lab::Storage;
using lab::Tensors;

class BackwardExecutor final : public lab::Executor {
 public:
  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  lab::Choice choose(std::string_view, const Problem&) override { return {"any/bwd", "emulated"}; }
  // Orders in which threads run, and configurations with other numbers of CTAs: a setting must not change a bit, so the
  // configuration stays within one check.
  std::vector<std::string> settings() const override { return {"2", "4", "6"}; }
  void run(std::string_view, Tensors& tensors, std::string_view setting) override {
    emulator::backward(tensors.problem, tensors.operands(), static_cast<unsigned>(std::stoi(std::string(setting))) + seed);
  }
  unsigned seed = 0;
};

class EmulatedBackward : public testing::Test {
 protected:
  void expect_good(const Case& c) {
    executor.seed = static_cast<unsigned>(c.seed);
    const lab::Outcome outcome = checker.check(c);
    EXPECT_TRUE(outcome.unsupported.empty()) << outcome.unsupported;
    EXPECT_TRUE(outcome.ok()) << c.problem << " input " << name_of(c.input) << " storage " << name_of(c.storage)
                              << " seed " << c.seed << ": " << outcome.judgement.failure << "; rel_rms "
                              << outcome.judgement.rel_rms << " of " << outcome.judgement.rel_rms_bound << ", max_ulp "
                              << outcome.judgement.max_ulp;
  }

  cpu::Threads threads{attune_options{}};
  BackwardExecutor executor;
  std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  lab::Checker checker{executor, *reference, threads};
};

Case case_of(const std::string& problem, InputKind input = InputKind::normal, Storage storage = Storage::dense,
             uint64_t seed = 1) {
  return {problem, "", input, seed, storage, std::nullopt};
}

TEST_F(EmulatedBackward, TakesEveryFeature) {
  for (const std::string& problem : lab::find_set("backward").problems)
    for (const Storage storage : {Storage::dense, Storage::odd})
      if (storage == Storage::odd || !test::small_budget())
        expect_good(case_of(problem, InputKind::normal, storage, storage == Storage::odd ? 1 : 2));
}

TEST_F(EmulatedBackward, StandsHostileInput) {
  uint64_t seed = 0;
  for (const InputKind input : lab::all_input_kinds)
    for (const char* dtype : {"f16", "bf16", "f32"})
      if (++seed % (test::small_budget() ? 4 : 1) == 0)
        expect_good(
            case_of(fmt::format("bwd b1 h2/1 q24 k70 d64 {} causal-br", dtype), input, Storage::dense, seed));
}

TEST_F(EmulatedBackward, OfRandomProblems) {
  const char* chosen = std::getenv("ATTUNE_TEST_SEED");
  const uint64_t first = chosen == nullptr ? 1 : std::strtoull(chosen, nullptr, 10);
  const char* count = std::getenv("ATTUNE_TEST_COUNT");
  const uint64_t cases = count != nullptr ? std::strtoull(count, nullptr, 10) : test::small_budget() ? 10 : 60;
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    expect_good(lab::random_backward_case(seed, 4e5));
    if (HasFailure()) break;  // each failure prints a lot
  }
}

}  // namespace
}  // namespace attune
