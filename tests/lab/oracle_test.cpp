// The oracles hold for every kernel of the CPU, and say why where they have nothing to say.
#include "lab/check/oracle.hpp"

#include "core/error.hpp"
#include "lab/check/report.hpp"
#include "tests/lab/lab_fixture.hpp"

namespace attune::lab {
namespace {

class Oracles : public Lab {
 protected:
  OracleVerdict ask(Oracle oracle, const std::string& problem) {
    const OracleRun run{*executor_, threads_, frozen_accuracy(), {}, "cpu/portable", 3, Storage::dense};
    return consult(oracle, parse_problem(problem), run);
  }
};

TEST_F(Oracles, NamesRoundTrip) {
  for (const Oracle oracle : all_oracles) EXPECT_EQ(oracle_from(name_of(oracle)), oracle);
  EXPECT_THROW(oracle_from("delphi"), Error);
}

TEST_F(Oracles, HoldForEveryKernel) {
  int consulted = 0;
  for (const Oracle oracle : all_oracles) {
    for (const char* problem :
         {"fwd b2 h4/2 q40 k70 d16 f16", "fwd b2 h4/2 q40 k70 d16 bf16 causal-br sink",
          "fwd b3 h2/2 q33 k65 d24/8 f32 causal-tl w20,-1 mask=b1qk", "fwd b3 h2/1 q30 k50 d16 f16 var used-k"}) {
      Case c = case_of(problem);
      c.oracle = oracle;
      c.seed = 5;
      for (const Outcome& outcome : checker().check(c, executor_->kernels(forward_operation))) {
        EXPECT_TRUE(outcome.ok()) << line_of(outcome) << ": " << outcome.judgement.failure;
        EXPECT_EQ(outcome.unsupported, "");
        consulted += outcome.not_applicable.empty() ? 1 : 0;
      }
    }
  }
  EXPECT_GT(consulted, 60);
}

TEST_F(Oracles, SayWhyTheyDoNotApply) {
  EXPECT_NE(ask(Oracle::key_order, "fwd b1 h1/1 q8 k8 d8 f16 causal-br").not_applicable, "");
  EXPECT_NE(ask(Oracle::head_order, "fwd b1 h1/1 q8 k8 d8 f16").not_applicable, "");
  EXPECT_NE(ask(Oracle::batch_order, "fwd b1 h2/2 q8 k8 d8 f16").not_applicable, "");
  EXPECT_NE(ask(Oracle::halves, "fwd b1 h2/2 q8 k8 d8 f16 nolse").not_applicable, "");
  EXPECT_NE(ask(Oracle::unit_values, "fwd b1 h2/2 q8 k8 d8 f16 sink nolse").not_applicable, "");
  EXPECT_EQ(ask(Oracle::zero_queries, "fwd b1 h2/2 q8 k8 d8 f16 causal-tl").not_applicable, "");
}

// As the kernels of some GPUs are: they take a causal problem, and not the window that its first half is.
class WithoutWindows final : public Executor {
 public:
  explicit WithoutWindows(Executor& all) : all_(all) {}
  DeviceKind device_kind() const override { return all_.device_kind(); }
  Choice choose(std::string_view kernel, const Problem& problem) override {
    return problem.has(ATTUNE_WINDOW) ? Choice{"", "a window is asked for"} : all_.choose(kernel, problem);
  }
  std::vector<std::string> settings() const override { return all_.settings(); }
  void run(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    if (!choose(kernel, tensors.problem).supported()) fail(ATTUNE_UNSUPPORTED, "a window is asked for");
    all_.run(kernel, tensors, setting);
  }

 private:
  Executor& all_;
};

TEST_F(Oracles, HalvesThatAKernelRefusesDoNotApply) {
  WithoutWindows executor(*executor_);
  const OracleRun run{executor, threads_, frozen_accuracy(), {}, "cpu/portable", 3, Storage::dense};
  const OracleVerdict causal = consult(Oracle::halves, parse_problem("fwd b1 h2/2 q8 k20 d8 f16 causal-br"), run);
  EXPECT_EQ(causal.not_applicable, "a window is asked for");
  EXPECT_EQ(causal.failure, "");
  EXPECT_EQ(consult(Oracle::halves, parse_problem("fwd b1 h2/2 q8 k20 d8 f16"), run).not_applicable, "");
}

TEST_F(Oracles, AnswerEmptyProblems) {
  for (const Oracle oracle : all_oracles)
    for (const char* problem : {"fwd b2 h2/2 q0 k8 d8 f16", "fwd b2 h2/2 q8 k0 d8 f16", "fwd b0 h2/2 q8 k8 d8 f16"})
      EXPECT_EQ(ask(oracle, problem).failure, "") << name_of(oracle) << " " << problem;
}

}  // namespace
}  // namespace attune::lab
