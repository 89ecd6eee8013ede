// The plain GPU kernels on the CPU, by the emulator: the forward kernel against the gate, the reference against the
// CPU's, the merge against the CPU's. On a GPU tests/gpu does the same with the compiled kernels.
#include "tests/any/emulated.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/reference.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/sets.hpp"
#include "tests/support/budget.hpp"

namespace attune {
namespace {

using lab::Case;
using lab::InputKind;
using lab::Storage;
using lab::Tensors;

// An executor of the lab, so that its gate and its hostile inputs judge the kernel.
class EmulatedExecutor final : public lab::Executor {
 public:
  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  lab::Choice choose(std::string_view, const Problem& problem) override {
    return {problem.operation == &merge_operation ? "any/merge" : "any/fwd", "emulated"};
  }
  std::vector<std::string> settings() const override { return {"1", "2", "3"}; }
  void run(std::string_view kernel, Tensors& tensors, std::string_view setting) override {
    if (tensors.problem.empty()) return;
    const unsigned number = static_cast<unsigned>(std::stoi(std::string(setting))) + seed;
    if (kernel == "any/merge")
      emulator::merge(tensors.problem, tensors.operands(), number);
    else
      emulator::forward(tensors.problem, tensors.operands(), number);
  }
  unsigned seed = 0;
};

class Emulated : public testing::Test {
 protected:
  void expect_good(const Case& c) {
    const lab::Outcome outcome = checker.check(c);
    EXPECT_TRUE(outcome.unsupported.empty()) << outcome.unsupported;
    EXPECT_TRUE(outcome.ok()) << c.problem << " input " << name_of(c.input) << " storage " << name_of(c.storage)
                              << " seed " << c.seed << ": " << outcome.judgement.failure << "; rel_rms "
                              << outcome.judgement.rel_rms << " of " << outcome.judgement.rel_rms_bound << ", max_ulp "
                              << outcome.judgement.max_ulp << ", lse_err " << outcome.judgement.lse_err;
  }

  cpu::Threads threads{attune_options{}};
  EmulatedExecutor executor;
  std::unique_ptr<lab::ReferenceSource> reference = lab::make_cpu_reference(threads);
  lab::Checker checker{executor, *reference, threads};
};

Case case_of(const std::string& problem, InputKind input = InputKind::normal, Storage storage = Storage::dense) {
  return {problem, "", input, 1, storage, std::nullopt};
}

TEST_F(Emulated, ForwardTakesEveryFeature) {
  for (const char* problem : {
           "fwd b1 h2/2 q33 k65 d64 f16",
           "fwd b2 h4/2 q20 k50 d40 bf16 causal-br",
           "fwd b1 h4/1 q50 k20 d72/24 f32 causal-tl",
           "fwd b1 h1/1 q70 k70 d128 f16 w7,3",
           "fwd b1 h2/1 q40 k80 d16 bf16 causal-br w20,0",
           "fwd b1 h2/2 q16 k40 d32 f16 cap5",
           "fwd b2 h2/2 q16 k40 d32 bf16 sink",
           "fwd b2 h2/2 q16 k40 d32 f16 bias=bhqk",
           "fwd b2 h2/2 q16 k40 d32 f32 bias=11qk",
           "fwd b2 h2/2 q16 k40 d32 bf16 mask=b1qk sink",
           "fwd b3 h2/1 q30 k40 d32 f16 var sink causal-br",
           "fwd b1 h1/1 q9 k33 d160/200 bf16",
           "fwd b1 h1/1 q3 k33 d512 f16",
           "fwd b1 h1/1 q3 k33 d300 f32",
           "fwd b1 h2/2 q10 k0 d32 f16",
           "fwd b1 h1/1 q10 k20 d32 f16 scale0",
           "fwd b1 h1/1 q10 k20 d32 f16 scale-0.3",
           "fwd b1 h1/1 q10 k20 d32 f32 scale1e30",
       })
    for (const Storage storage : lab::all_storages)
      if (storage == Storage::odd || !test::small_budget()) expect_good(case_of(problem, InputKind::normal, storage));
}

TEST_F(Emulated, ForwardStandsHostileInput) {
  for (const InputKind input : lab::all_input_kinds)
    for (const char* dtype : {"f16", "bf16", "f32"}) {
      const int queries = test::small_budget() ? 8 : 24;
      expect_good(case_of(fmt::format("fwd b1 h2/1 q{} k100 d64 {} causal-br", queries, dtype), input));
    }
}

TEST_F(Emulated, ForwardOfRandomProblems) {
  const char* chosen = std::getenv("ATTUNE_TEST_SEED");
  const uint64_t first = chosen == nullptr ? 1000 : std::strtoull(chosen, nullptr, 10);
  for (uint64_t seed = first; seed < first + (test::small_budget() ? 30 : 120); ++seed) {
    executor.seed = static_cast<unsigned>(seed);
    expect_good(lab::random_case(seed, 4e5));
    if (HasFailure()) break;  // each failure prints a lot
  }
}

TEST_F(Emulated, ForwardIsTheSameInAnyOrderOfThreads) {
  const Problem problem = parse_problem("fwd b1 h2/1 q40 k70 d32 bf16 causal-br");
  const Tensors inputs = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
  Tensors first = inputs, second = inputs;
  emulator::run_forward<4, 2>(first.problem, first.operands(), 0);
  emulator::run_forward<4, 2>(second.problem, second.operands(), 5);
  EXPECT_TRUE(std::ranges::equal(first[Operand::o].whole(), second[Operand::o].whole()));
}

TEST_F(Emulated, ForwardNeverWritesOutside) {
  for (const Storage storage : {Storage::padded, Storage::odd}) {
    const Problem problem = parse_problem("fwd b3 h2/1 q30 k40 d24 bf16 var");
    Tensors tensors = lab::make_inputs(problem, InputKind::normal, 3, storage, threads);
    emulator::forward(tensors.problem, tensors.operands(), 1);
    EXPECT_EQ(lab::stray_writes(tensors), "");
  }
}

// Hidden keys may hold anything; seen ones spoil the rows that see them and no others.
TEST_F(Emulated, NotANumberStaysWhereItBelongs) {
  const Problem problem = parse_problem("fwd b1 h1/1 q40 k40 d32 f16 causal-br");
  Tensors tensors = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
  constexpr int bad_key = 21;
  for (int d = 0; d < 32; ++d) {
    tensors[Operand::k].as<uint16_t>()[tensors.problem.k.row * bad_key + d] = 0x7e00;
    tensors[Operand::v].as<uint16_t>()[tensors.problem.v.row * bad_key + d] = 0x7c00;
  }
  emulator::run_forward<4, 2>(tensors.problem, tensors.operands(), 1);
  for (int row = 0; row < 40; ++row) {
    const float value = f16_to_float(tensors[Operand::o].as<uint16_t>()[tensors.problem.o.row * row]);
    EXPECT_EQ(std::isfinite(value), row < bad_key) << "row " << row;
  }
}

void expect_reference_agrees(const Problem& asked, InputKind input, uint64_t seed, cpu::Threads& threads) {
  Tensors tensors = lab::make_inputs(asked, input, seed, Storage::odd, threads);
  const Problem& problem = tensors.problem;
  if (problem.empty()) return;
  const int64_t rows = problem.packed() ? problem.total_q : problem.batch * problem.seq_q;
  const double unset = std::nan("");
  std::vector<double> o(static_cast<size_t>(problem.heads_q * rows * problem.dim_v), unset);
  std::vector<double> lse(static_cast<size_t>(problem.heads_q * rows), unset);
  emulator::reference(problem, tensors.operands(), o.data(), lse.data(), static_cast<unsigned>(seed));
  std::vector<double> right(static_cast<size_t>(problem.dim_v));
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    const Sequence sequence = tensors.sequence(batch);
    for (int64_t head = 0; head < problem.heads_q; ++head)
      for (int64_t row = 0; row < sequence.stored_q; ++row) {
        double right_lse = 0;
        cpu::reference_row(problem, tensors.operands(), batch, head, row, right.data(), &right_lse, nullptr);
        const int64_t at = head * rows + (problem.packed() ? sequence.first_row_q + row : batch * problem.seq_q + row);
        if (std::isinf(right_lse))
          ASSERT_EQ(lse[at], right_lse);
        else
          ASSERT_NEAR(lse[at], right_lse, 1e-12 * std::max(1.0, std::abs(right_lse)));
        double largest = 0;
        for (const double value : right) largest = std::max(largest, std::abs(value));
        for (int64_t d = 0; d < problem.dim_v; ++d)
          ASSERT_NEAR(o[at * problem.dim_v + d], right[d], 1e-9 * std::max(largest, 1e-300))
              << to_string(problem) << " seed " << seed << " row " << row;
      }
  }
}

// Scores of a few units by scales as large as GPU kernels are asked for.
TEST_F(Emulated, HugeScalesOfTinyScoresAreExact) {
  for (const char* dtype : {"bf16", "f32"})
    for (const float scale : {1.9e38f, -2e38f}) {
      Problem problem = parse_problem(fmt::format("fwd b1 h1/1 q20 k40 d16 {}", dtype));
      problem.scale = scale;
      Tensors tensors = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
      for (lab::Buffer* buffer : {&tensors[Operand::q], &tensors[Operand::k]})
        for (int64_t i = 0; i < (buffer == &tensors[Operand::q] ? 20 : 40) * 16; ++i)
          store_element(buffer->data(), problem.dtype, i, load_element(buffer->data(), problem.dtype, i) * 0x1p-64f);
      emulator::forward(tensors.problem, tensors.operands(), 1);
      for (int64_t row = 0; row < 20; ++row) {
        std::vector<double> right(16);
        double lse = 0;
        cpu::reference_row(problem, tensors.operands(), 0, 0, row, right.data(), &lse, nullptr);
        ASSERT_NEAR(tensors[Operand::lse].as<float>()[row], lse, 2e-5 * std::max(1.0, std::abs(lse)))
            << dtype << " " << scale;
        for (int64_t d = 0; d < 16; ++d)
          ASSERT_NEAR(load_element(tensors[Operand::o].data(), problem.dtype, row * 16 + d),
                      right[static_cast<size_t>(d)], 0.02)
              << dtype << " " << scale;
      }
    }
}

TEST_F(Emulated, ReferenceAgreesWithTheOneOnTheCpu) {
  for (uint64_t seed = 1; seed <= (test::small_budget() ? 12 : 80); ++seed) {
    const Case c = lab::random_case(seed, 3e5);
    expect_reference_agrees(parse_problem(c.problem), c.input, c.seed, threads);
    if (HasFailure()) break;
  }
}

TEST_F(Emulated, MergesJoinPartsOfEveryType) {
  for (const std::string& problem : lab::find_set("merge").problems)
    for (const InputKind input : {InputKind::normal, InputKind::rising_max, InputKind::extremes})
      expect_good(case_of(problem, input, input == InputKind::normal ? Storage::odd : Storage::dense));
}

TEST(Emulator, SeesABarrierThatNotAllThreadsReach) {
  EXPECT_THROW(emulator::Block::launch({1, 1, 1}, 64, 0, 1,
                                       [] {
                                         if (threadIdx.x < 32) __syncthreads();
                                         if (threadIdx.x >= 32) __syncwarp();
                                         if (threadIdx.x == 40) __syncwarp();
                                         __syncthreads();
                                       }),
               std::runtime_error);
}

// A 16 x 16 and a 16 x 8 matrix of small integers, which tensor cores multiply without an error.
TEST(Emulator, MultipliesAsTensorCoresDo) {
  const auto a_at = [](int row, int k) { return static_cast<float>((row * 7 + k * 3) % 11 - 5); };
  const auto b_at = [](int k, int column) { return static_cast<float>((k * 5 + column * 2) % 9 - 4); };
  alignas(16) static uint16_t a[16][16], b[16][8], b_columns[16][16];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) a[i][k] = float_to_f16(a_at(i, k));
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = b_columns[j][k] = b_columns[j + 8][k] = float_to_f16(b_at(k, j));
  static float found[2][16][8];
  emulator::Block::launch({1, 1, 1}, 32, 0, 3, [&] {
    const unsigned lane = threadIdx.x;
    uint32_t x[4], by_rows[4], by_columns[4];
    device::ldmatrix_x4(x, &a[lane % 16][lane / 16 * 8]);
    device::ldmatrix_x4_trans(by_rows, &b[lane % 16][0]);
    device::ldmatrix_x4(by_columns, &b_columns[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    float d[2][4] = {{1, 1, 1, 1}, {1, 1, 1, 1}};
    device::mma_16x8x16<device::Dtype::f16>(d[0], x, by_rows[0], by_rows[1]);
    device::mma_16x8x16<device::Dtype::f16>(d[1], x, by_columns[0], by_columns[1]);
    for (unsigned e = 0; e < 4; ++e)
      for (unsigned i = 0; i < 2; ++i) found[i][lane / 4 + e / 2 * 8][lane % 4 * 2 + e % 2] = d[i][e];
  });
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 8; ++j) {
      float right = 1;
      for (int k = 0; k < 16; ++k) right += a_at(i, k) * b_at(k, j);
      EXPECT_EQ(found[0][i][j], right) << i << ", " << j;
      EXPECT_EQ(found[1][i][j], right) << i << ", " << j;
    }
}

// What does not fit into a float is dropped, not rounded.
TEST(Emulator, SumsTowardsZeroAsTensorCoresDo) {
  EXPECT_EQ(device::truncated(1 + 0x1.8p-24), 1.0f);
  EXPECT_EQ(device::truncated(-1 - 0x1.8p-24), -1.0f);
  EXPECT_EQ(device::truncated(1 + 0x1p-23), 1 + 0x1p-23f);
}

TEST(Emulator, CopiesAreThereOnlyOnceWaitedFor) {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[8] = {};
  emulator::Block::launch({1, 1, 1}, 1, 0, 0, [&] {
    device::cp_async_16(to, from, 8);
    device::cp_async_commit();
    device::cp_async_16(to + 4, from + 4);
    device::cp_async_commit();
    EXPECT_TRUE(std::isnan(to[0]));
    device::cp_async_wait<1>();
    EXPECT_EQ(to[1], 2);
    EXPECT_EQ(to[2], 0) << "past the bytes asked for";
    EXPECT_TRUE(std::isnan(to[4])) << "of the group that was not waited for";
    device::cp_async_wait<0>();
    EXPECT_EQ(to[7], 8);
  });
  EXPECT_THROW(emulator::Block::launch({1, 1, 1}, 1, 0, 0, [&] { device::cp_async_16(to + 1, from); }),
               std::runtime_error);
}

}  // namespace
}  // namespace attune
