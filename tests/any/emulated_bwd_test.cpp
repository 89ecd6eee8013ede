// Kernel any/bwd on the CPU, by the emulator, against the gate for gradients. On a GPU `attune check --kernel any/bwd`
// does the same with the compiled kernel.
#include "tests/any/emulated_bwd.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "lab/check/checker.hpp"
#include "lab/check/method.hpp"
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
  // Seeds for the order in which threads run and for the grid, which must not change a bit. Even steps, so that the
  // configuration is the same.
  std::vector<std::string> settings() const override { return {"2", "4", "6"}; }
  void run(std::string_view, Tensors& tensors, std::string_view setting) override {
    emulator::backward(tensors.problem, tensors.operands(),
                       static_cast<unsigned>(std::stoi(std::string(setting))) + seed);
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
        expect_good(case_of(fmt::format("bwd b1 h2/1 q24 k70 d64 {} causal-br", dtype), input, Storage::dense, seed));
}

// Other orders of threads, other grids, strides, heads and batches in another order: the same bits.
TEST_F(EmulatedBackward, GivesTheSameBits) {
  for (const char* problem :
       {"bwd b2 h4/2 q40 k70 d40/24 bf16 causal-br sink dsink dlse",
        "bwd b2 h2/1 q50 k30 d72 f16 w9,5 bias=1h1k dbias mask=b1qk", "bwd b2 h2/2 q20 k40 d16 f32 cap5 used-q used-k"})
    for (const Oracle oracle : lab::check_method_of(parse_problem(problem)).oracles) {
      Case c = case_of(problem, InputKind::normal, Storage::odd);
      c.oracle = oracle;
      expect_good(c);
    }
}

// Of keys that no row sees and rows that see none nothing is read, whatever lies there.
TEST_F(EmulatedBackward, ReadsNothingThatIsNotSeen) {
  const auto poison = [](Tensors& t, Operand operand, int64_t row_stride, int64_t begin, int64_t end, int64_t dim) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t d = 0; d < dim; ++d)
        store_element(t[operand].data(), t.problem.dtype, row * row_stride + d, std::nanf(""));
  };
  const auto expect_finite = [](Tensors& t, Operand operand, int64_t elements) {
    for (int64_t i = 0; i < elements; ++i)
      ASSERT_TRUE(std::isfinite(load_element(t[operand].data(), t.problem.dtype, i)))
          << row_of(operand).name << " element " << i;
  };
  for (const char* dtype : {"f16", "f32"})
    for (const bool keys : {false, true}) {
      const int rows = keys ? 40 : 75, all_keys = keys ? 75 : 40;
      const Problem problem =
          parse_problem(fmt::format("bwd b1 h1/1 q{} k{} d32 {} {}{}", rows, all_keys, dtype,
                                    keys ? "causal-tl" : "causal-br", keys ? "" : " bias=11qk dbias"));
      Tensors t = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
      if (keys) {
        poison(t, Operand::k, problem.k.row, 40, 75, 32);
        poison(t, Operand::v, problem.v.row, 40, 75, 32);
      } else {
        poison(t, Operand::q, problem.q.row, 0, 35, 32);
        poison(t, Operand::dout, problem.dout.row, 0, 35, 32);
        poison(t, Operand::o, problem.o.row, 0, 35, 32);
      }
      emulator::backward(t.problem, t.operands(), 2);
      expect_finite(t, Operand::dq, rows * 32);
      expect_finite(t, Operand::dk, all_keys * 32);
      expect_finite(t, Operand::dv, all_keys * 32);
      if (!keys) expect_finite(t, Operand::dbias, rows * all_keys);
    }
}

// Lengths on a device are data. Whatever they hold, nothing outside the tensors is read (AddressSanitizer looks) or
// written.
TEST_F(EmulatedBackward, ClampsLengths) {
  const Problem problem = parse_problem("bwd b3 h2/1 q30 k40 d24 bf16 var used-q used-k sink dsink");
  for (const Storage storage : {Storage::padded, Storage::odd}) {
    const Tensors good = lab::make_inputs(problem, InputKind::normal, 3, storage, threads);
    for (const int32_t wrong : {-5, 7, 1 << 30}) {
      Tensors tensors = good;
      for (const Operand operand : {Operand::cu_seqlens_q, Operand::cu_seqlens_k, Operand::used_q, Operand::used_k})
        tensors[operand].as<int32_t>()[1] = wrong;
      emulator::backward(tensors.problem, tensors.operands(), 2);
      EXPECT_EQ(lab::stray_writes(tensors), "") << wrong;
    }
  }
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
