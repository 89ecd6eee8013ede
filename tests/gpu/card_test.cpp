// The contracts on a real card, through the same checks as on the CPU: every kernel against the gate, the reference
// kernel against the one on the CPU, merge. Skipped, and said so, where there is no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "core/convert.hpp"
#include "cpu/merge.hpp"
#include "cpu/reference.hpp"
#include "gpu/kernel.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/sets.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/merge_desc.hpp"

namespace attune::lab {
namespace {

// Problems that between them have every feature; each kernel runs those it takes.
constexpr const char* feature_problems[] = {
    "fwd b1 h2/2 q64 k64 d64 f16",
    "fwd b2 h8/2 q200 k333 d64 bf16 causal-br",
    "fwd b1 h4/1 q300 k77 d128 f16 causal-tl",
    "fwd b2 h2/2 q257 k511 d128 bf16",
    "fwd b1 h2/2 q129 k129 d256 f16 causal-br",
    "fwd b1 h4/4 q190 k190 d72/24 f32 causal-tl",
    "fwd b1 h1/1 q300 k300 d128 f16 w70,30",
    "fwd b1 h2/1 q140 k280 d16 bf16 causal-br w100,0",
    "fwd b1 h2/2 q100 k140 d32 f16 cap5",
    "fwd b2 h2/2 q100 k140 d64 bf16 sink",
    "fwd b2 h2/2 q100 k140 d64 f16 bias=bhqk",
    "fwd b2 h2/2 q100 k140 d32 f32 bias=11qk",
    "fwd b2 h2/2 q100 k140 d64 bf16 mask=b1qk sink",
    "fwd b5 h4/2 q130 k140 d64 f16 var sink causal-br",
    "fwd b3 h2/2 q130 k140 d128 bf16 var",
    "fwd b1 h1/1 q90 k133 d160/200 bf16",
    "fwd b1 h1/1 q30 k133 d512 f16",
    "fwd b1 h1/1 q30 k133 d300 f32",
    "fwd b2 h4/1 q1 k1000 d128 bf16",
    "fwd b1 h2/2 q10 k0 d32 f16",
    "fwd b1 h1/1 q100 k200 d64 f16 scale0",
    "fwd b1 h1/1 q100 k200 d64 f16 scale-0.3",
    "fwd b1 h1/1 q100 k200 d32 f32 scale1e30",
};

class Card : public testing::Test {
 protected:
  void SetUp() override {
    ATTUNE_REQUIRE_GPU();
    executor = make_cuda_executor();
    cpu_truth = make_cpu_reference(threads);
    gpu_truth = make_cuda_reference();
    checker = std::make_unique<Checker>(*executor, *cpu_truth, threads);
  }

  void expect_good(Checker& with, const Case& c, bool must_run = false) {
    const Outcome outcome = with.check(c);
    if (!outcome.unsupported.empty()) {
      EXPECT_FALSE(must_run) << c.problem << ": " << outcome.unsupported;
      return;
    }
    ++checked;
    EXPECT_TRUE(outcome.ok()) << reproducer(outcome.of) << "\n"
                              << outcome.judgement.failure << "; rel_rms " << outcome.judgement.rel_rms << " of "
                              << outcome.judgement.rel_rms_bound << ", max_ulp " << outcome.judgement.max_ulp
                              << ", lse_err " << outcome.judgement.lse_err;
  }

  static Case case_of(const std::string& problem, const std::string& kernel, InputKind input = InputKind::normal,
                      Storage storage = Storage::dense) {
    return {problem, kernel, input, 1, storage, std::nullopt};
  }

  cpu::Threads threads{attune_options{}};
  std::unique_ptr<Executor> executor;
  std::unique_ptr<ReferenceSource> cpu_truth, gpu_truth;
  std::unique_ptr<Checker> checker;
  int checked = 0;
};

TEST_F(Card, EveryKernelWithEveryFeatureItTakes) {
  for (const std::string& kernel : executor->kernels(forward_operation)) {
    checked = 0;
    for (const char* problem : feature_problems)
      for (const Storage storage : all_storages)
        expect_good(*checker, case_of(problem, kernel, InputKind::normal, storage));
    EXPECT_GT(checked, kernel == "test/toy" ? -1 : 0) << kernel << " took none of the problems";
  }
}

TEST_F(Card, TheLibraryItselfServesEveryProblem) {
  for (const char* problem : feature_problems)
    for (const Storage storage : all_storages)
      expect_good(*checker, case_of(problem, "", InputKind::normal, storage), true);
}

TEST_F(Card, EveryKernelStandsHostileInput) {
  for (const std::string& kernel : executor->kernels(forward_operation))
    for (const InputKind input : all_input_kinds)
      for (const char* problem : {"fwd b1 h2/1 q200 k300 d64 f16 causal-br", "fwd b1 h2/2 q130 k260 d128 bf16",
                                  "fwd b1 h1/1 q100 k150 d64 f32"})
        expect_good(*checker, case_of(problem, kernel, input));
}

TEST_F(Card, RandomProblems) {
  const char* chosen = std::getenv("ATTUNE_TEST_SEED");
  const uint64_t first = chosen == nullptr ? 50'000 : std::strtoull(chosen, nullptr, 10);
  for (uint64_t seed = first; seed < first + 400; ++seed) {
    Case c = random_case(seed);
    expect_good(*checker, c, true);
    c.kernel = "any/fwd";
    expect_good(*checker, c, true);
    if (HasFailure()) break;
  }
}

TEST_F(Card, ReferenceAgreesWithTheOneOnTheCpu) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    const Case c = random_case(seed);
    const Tensors tensors = make_inputs(parse_problem(c.problem), c.input, c.seed, c.storage, threads);
    const RowChoice choice = choose_rows(tensors, {}, seed);
    const ReferenceRows cpu = cpu_truth->rows(tensors, choice.rows), gpu = gpu_truth->rows(tensors, choice.rows);
    ASSERT_EQ(cpu.o.size(), gpu.o.size());
    for (size_t row = 0; row < choice.rows.size(); ++row) {
      if (std::isinf(cpu.lse[row]))
        ASSERT_EQ(gpu.lse[row], cpu.lse[row]) << c.problem;
      else
        ASSERT_NEAR(gpu.lse[row], cpu.lse[row], 1e-12 * std::max(1.0, std::abs(cpu.lse[row]))) << c.problem;
      const auto* right = &cpu.o[row * static_cast<size_t>(cpu.dim)];
      double largest = 1e-300;
      for (int64_t d = 0; d < cpu.dim; ++d) largest = std::max(largest, std::abs(right[d]));
      for (int64_t d = 0; d < cpu.dim; ++d)
        ASSERT_NEAR(gpu.o[row * static_cast<size_t>(gpu.dim) + static_cast<size_t>(d)], right[d], 1e-9 * largest)
            << c.problem << " seed " << seed;
    }
  }
}

TEST_F(Card, LargeProblemsAgainstTheReferenceOnTheGpu) {
  Checker large(*executor, *gpu_truth, threads);
  for (const char* problem : {"fwd b1 h32/32 q2048 k2048 d128 bf16 causal-br", "fwd b2 h16/4 q4096 k4096 d64 f16",
                              "fwd b1 h8/8 q8192 k8192 d128 f16 causal-br", "fwd b1 h4/4 q2048 k2048 d256 bf16"}) {
    expect_good(large, case_of(problem, ""), true);
    expect_good(large, case_of(problem, "any/fwd"), true);
  }
}

TEST_F(Card, ResultsAreTheSameToTheBitEveryTime) {
  for (const char* text : feature_problems) {
    const Problem problem = parse_problem(text);
    if (problem.empty()) continue;
    const Tensors inputs = make_inputs(problem, InputKind::normal, 7, Storage::dense, threads);
    for (const std::string& kernel : executor->kernels(forward_operation)) {
      if (!executor->choose(kernel, problem).supported()) continue;
      Tensors first = inputs;
      executor->run(kernel, first);
      for (const std::string& setting : executor->settings()) {
        Tensors again = inputs;
        executor->run(kernel, again, setting);
        EXPECT_TRUE(std::ranges::equal(first[Operand::o].whole(), again[Operand::o].whole()))
            << kernel << " " << text << " " << setting;
        EXPECT_TRUE(std::ranges::equal(first[Operand::lse].whole(), again[Operand::lse].whole()))
            << kernel << " " << text << " " << setting;
      }
    }
  }
}

TEST_F(Card, MergesPassTheGate) {
  for (const std::string& problem : lab::find_set("merge").problems)
    for (const InputKind input : lab::all_input_kinds)
      expect_good(*checker, {problem, "", input, 1, Storage::dense, std::nullopt}, true);
}

}  // namespace
}  // namespace attune::lab
