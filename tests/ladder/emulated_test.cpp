// Every rung of the ladder, and the file that `attune try --new` writes, against float64, on the CPU: launched as its
// own comment says, run by the emulator with threads and asynchronous copies in several orders, and judged by the gate
// of the library's own kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "lab/check/checker.hpp"
#include "lab/ladder/unfused.hpp"
#include "tests/ladder/emulator.hpp"
#include "tests/ladder/rungs.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/paths.hpp"

namespace attune::ladder {
namespace {

using lab::Case;
using lab::InputKind;

// Threads of a file by its name, for the problem's type and head dimension.
const Rungs& rungs_for(const Problem& problem) {
  static const std::map<std::pair<Dtype, int64_t>, Rungs> all{{{Dtype::f16, 64}, rungs_f16_d64()},
                                                              {{Dtype::f16, 128}, rungs_f16_d128()},
                                                              {{Dtype::bf16, 64}, rungs_bf16_d64()},
                                                              {{Dtype::bf16, 128}, rungs_bf16_d128()}};
  return all.at({problem.dtype, problem.dim_qk});
}

std::string file_of(const std::string& name) {
  std::string first;
  std::istringstream(name) >> first;
  return test::repo() + (first == "new_kernel" ? "/lab/try/" : "/kernels/ladder/") + first + ".cu";
}

// An executor of the lab, so that its gate, its red zones and its hostile inputs judge the rung.
class RungExecutor final : public lab::Executor {
 public:
  explicit RungExecutor(std::string name)
      : name_(std::move(name)),
        unfused_(name_ == lab::unfused_rung),
        file_(unfused_ ? lab::unfused_softmax(file_of(name_)) : lab::read_kernel_file(file_of(name_))) {}

  // With a mistake.
  RungExecutor(std::string name, Thread planted) : RungExecutor(std::move(name)) { planted_ = planted; }

  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  lab::Choice choose(std::string_view, const Problem& problem) override {
    const std::string refusal = unfused_ ? lab::unfused_refusal(problem) : lab::refusal_of(file_, problem);
    return refusal.empty() ? lab::Choice{name_, "emulated"} : lab::Choice{"", refusal};
  }
  std::vector<std::string> settings() const override { return {"1"}; }
  void run(std::string_view, lab::Tensors& tensors, std::string_view) override {
    if (unfused_) return run_unfused(tensors);
    const Problem& problem = tensors.problem;
    const lab::KernelLaunch launch = lab::launch_of(file_, problem);
    std::vector<float> unwanted_lse(static_cast<size_t>(problem.batch * problem.heads_q * problem.seq_q));
    const Operands operands = tensors.operands();
    void* const lse = problem.has(ATTUNE_LSE) ? operands.out(Operand::lse) : unwanted_lse.data();
    const std::vector<lab::KernelArgument> arguments = lab::arguments_of(file_, problem, operands, lse);
    const Thread thread = planted_ != nullptr ? planted_ : rungs_for(problem).at(name_);
    const bool one_producer = name_.ends_with("PRODUCERS=1");
    // Blocks that walk over tiles must be right however few they are; without persistence there is one for each tile.
    const bool walks = name_.starts_with("13_persistent") && seed % 4 != 3;
    const unsigned blocks = walks ? std::min(launch.grid[0], 1 + seed % 3) : launch.grid[0];
    Block::launch({blocks, launch.grid[1], launch.grid[2]}, launch.threads - (one_producer ? 32 : 0),
                  launch.shared_bytes, seed, [&] { thread(arguments); });
  }
  unsigned seed = 0;

 private:
  // As UnfusedCallee does, with products on the CPU.
  void run_unfused(lab::Tensors& tensors) {
    static const lab::CublasLt lt(test::build() + "/tests/libfake_cublaslt.so");
    const Problem& problem = tensors.problem;
    const lab::UnfusedPlan plan = lab::unfused_plan(problem);
    const Operands operands = tensors.operands();
    std::vector<std::byte> workspace(plan.workspace_bytes, std::byte{0xff});
    const auto at = [&](const void* data, int64_t step, int64_t sequence) {
      return static_cast<const std::byte*>(data) + step * sequence * 2;
    };
    std::byte* const scores = workspace.data() + plan.scores_at;
    std::byte* const weights = workspace.data() + plan.weights_at;
    const auto algorithm = [&](const lab::Gemm& gemm) {
      return lt.algorithms(gemm, lab::gemm_workspace_bytes, lab::most_algorithms).back();
    };
    for (int64_t b = 0; b < problem.batch; ++b)
      lt.run(plan.scores, algorithm(plan.scores), at(operands.in(Operand::k), plan.kv_step, b),
             at(operands.in(Operand::q), plan.q_step, b), scores + plan.score_step * b * 4, nullptr, nullptr);
    Operands of_softmax;
    of_softmax.set(Operand::q, scores);
    of_softmax.set(Operand::o, weights);
    void* const lse = problem.has(ATTUNE_LSE) ? operands.out(Operand::lse) : workspace.data() + plan.lse_at;
    const lab::KernelLaunch launch = lab::launch_of(file_, problem);
    const auto arguments = lab::arguments_of(file_, problem, of_softmax, lse);
    const Thread thread = rungs_for(problem).at(name_);
    Block::launch({launch.grid[0], launch.grid[1], launch.grid[2]}, launch.threads, launch.shared_bytes, seed,
                  [&] { thread(arguments); });
    for (int64_t b = 0; b < problem.batch; ++b)
      lt.run(plan.outputs, algorithm(plan.outputs), at(operands.in(Operand::v), plan.kv_step, b),
             at(weights, plan.score_step, b), static_cast<std::byte*>(operands.out(Operand::o)) + plan.o_step * b * 2,
             nullptr, nullptr);
  }

  std::string name_;
  bool unfused_;
  Thread planted_ = nullptr;
  lab::KernelFile file_;
};

class Rung : public testing::TestWithParam<std::string> {
 protected:
  void expect_good(const std::string& problem, InputKind input = InputKind::normal) {
    ++executor.seed;
    Case c;
    c.problem = problem;
    c.input = input;
    c.seed = executor.seed;
    const lab::Outcome outcome = checker.check(c);
    const Problem parsed = parse_problem(problem);
    if (GetParam() == lab::unfused_rung && parsed.heads_q != parsed.heads_kv) {
      EXPECT_THAT(outcome.unsupported, testing::HasSubstr("it does not support groups"));
      return;
    }
    EXPECT_EQ(outcome.unsupported, "") << problem;
    EXPECT_TRUE(outcome.ok()) << problem << " input " << name_of(input) << " seed " << executor.seed << ": "
                              << outcome.judgement.failure;
  }

  cpu::Threads threads{attune_options{}};
  RungExecutor executor{GetParam()};
  std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  lab::Checker checker{executor, *reference, threads};
};

TEST_P(Rung, IsRightAtOddShapesOfEveryTypeAndMask) {
  int left = test::small_budget() ? 2 : 100;
  for (const char* problem :
       {"fwd b2 h3/3 q9 k20 d64 f16", "fwd b1 h1/1 q40 k100 d128 f16 causal-br", "fwd b1 h1/1 q70 k77 d64 f16",
        "fwd b2 h2/1 q20 k130 d64 f16 causal-br", "fwd b1 h2/1 q110 k40 d64 f16 causal-tl",
        "fwd b1 h2/2 q20 k70 d64 bf16 nolse", "fwd b1 h1/1 q65 k65 d128 bf16 causal-tl scale-0.3",
        "fwd b1 h3/1 q1 k65 d64 bf16", "fwd b1 h1/1 q100 k30 d64 f16 causal-br", "fwd b1 h1/1 q5 k1 d128 f16"}) {
    if (left-- == 0) break;
    expect_good(problem);
  }
}

TEST_P(Rung, IsRightOnHostileInputs) {
  if (test::small_budget()) GTEST_SKIP() << "the budget is small";
  for (const InputKind kind : lab::all_input_kinds) expect_good("fwd b1 h1/1 q34 k70 d64 f16 causal-br", kind);
}

TEST_P(Rung, GivesTheSameBitsInEveryOrderOfThreads) {
  if (test::small_budget()) GTEST_SKIP() << "the budget is small";
  const Problem problem = parse_problem("fwd b1 h2/2 q20 k140 d64 f16 causal-br");
  std::vector<std::byte> first;
  for (const unsigned seed : {0u, 1u, 2u, 7u, 12u}) {
    lab::Tensors tensors = lab::make_inputs(problem, InputKind::normal, 3, lab::Storage::dense, threads);
    executor.seed = seed;
    executor.run("", tensors, "");
    const std::span<std::byte> written = tensors[Operand::o].elements();
    const std::vector<std::byte> bytes(written.begin(), written.end());
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << "seed " << seed;
  }
}

// A crash and a hang end the process that a kernel runs in: tests/lab_trial has those.
TEST(Mistake, InAKernelFileIsFound) {
  cpu::Threads threads{attune_options{}};
  const std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  for (const auto& [name, thread] : mistakes()) {
    RungExecutor executor("new_kernel", thread);
    Case c;
    c.problem = "fwd b2 h2/2 q20 k30 d64 f16 causal-br";
    const lab::Outcome outcome = lab::Checker(executor, *reference, threads).check(c);
    EXPECT_FALSE(outcome.ok()) << name;
    EXPECT_NE(outcome.judgement.failure, "") << name;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [name, thread] : rungs_f16_d64()) all.push_back(name);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ladder, Rung, testing::ValuesIn(names()), [](const auto& of) {
  std::string name = of.param;
  std::ranges::replace_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace attune::ladder
