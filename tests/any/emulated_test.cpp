// The plain GPU kernels on the CPU, by the emulator: the forward kernel against the gate, the reference against the
// CPU's, the merge against the CPU's. On a GPU tests/gpu does the same with the compiled kernels.
#include "tests/any/emulated.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cpu/merge.hpp"
#include "cpu/reference.hpp"
#include "kernels/any/merge.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/random_problem.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/merge_desc.hpp"

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
  lab::Choice choose(std::string_view, const Problem&) override { return {"any/fwd", "emulated"}; }
  std::vector<std::string> settings() const override { return {"1", "2", "3"}; }
  void forward(std::string_view, Tensors& tensors, std::string_view setting) override {
    if (tensors.problem.empty()) return;
    emulator::forward(tensors.problem, tensors.args(), static_cast<unsigned>(std::stoi(std::string(setting))) + seed);
  }
  void merge(const attune_merge_desc&, const attune_merge_args&) override { FAIL() << "tested below"; }
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
  emulator::run_forward<4, 2>(first.problem, first.args(), 0);
  emulator::run_forward<4, 2>(second.problem, second.args(), 5);
  EXPECT_TRUE(std::ranges::equal(first.o.whole(), second.o.whole()));
}

TEST_F(Emulated, ForwardNeverWritesOutside) {
  for (const Storage storage : {Storage::padded, Storage::odd}) {
    const Problem problem = parse_problem("fwd b3 h2/1 q30 k40 d24 bf16 var");
    Tensors tensors = lab::make_inputs(problem, InputKind::normal, 3, storage, threads);
    emulator::forward(tensors.problem, tensors.args(), 1);
    EXPECT_EQ(lab::stray_writes(tensors), "");
  }
}

// Hidden keys may hold anything; seen ones spoil the rows that see them and no others.
TEST_F(Emulated, NotANumberStaysWhereItBelongs) {
  const Problem problem = parse_problem("fwd b1 h1/1 q40 k40 d32 f16 causal-br");
  Tensors tensors = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
  constexpr int bad_key = 21;
  for (int d = 0; d < 32; ++d) {
    tensors.k.as<uint16_t>()[tensors.problem.k.row * bad_key + d] = 0x7e00;
    tensors.v.as<uint16_t>()[tensors.problem.v.row * bad_key + d] = 0x7c00;
  }
  emulator::run_forward<4, 2>(tensors.problem, tensors.args(), 1);
  for (int row = 0; row < 40; ++row) {
    const float value = f16_to_float(tensors.o.as<uint16_t>()[tensors.problem.o.row * row]);
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
  emulator::reference(problem, tensors.args(), o.data(), lse.data(), static_cast<unsigned>(seed));
  std::vector<double> right(static_cast<size_t>(problem.dim_v));
  for (int64_t batch = 0; batch < problem.batch; ++batch) {
    const Sequence sequence = tensors.sequence(batch);
    for (int64_t head = 0; head < problem.heads_q; ++head)
      for (int64_t row = 0; row < sequence.stored_q; ++row) {
        double right_lse = 0;
        cpu::reference_row(problem, tensors.args(), batch, head, row, right.data(), &right_lse, nullptr);
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

// Scores of a few units by scales as large as there are.
TEST_F(Emulated, HugeScalesOfTinyScoresAreExact) {
  for (const char* dtype : {"bf16", "f32"})
    for (const float scale : {1.9e38f, 2.4e38f, -3.4e38f}) {
      Problem problem = parse_problem(fmt::format("fwd b1 h1/1 q20 k40 d16 {}", dtype));
      problem.scale = scale;
      Tensors tensors = lab::make_inputs(problem, InputKind::normal, 1, Storage::dense, threads);
      for (lab::Buffer* buffer : {&tensors.q, &tensors.k})
        for (int64_t i = 0; i < (buffer == &tensors.q ? 20 : 40) * 16; ++i)
          store_element(buffer->data(), problem.dtype, i, load_element(buffer->data(), problem.dtype, i) * 0x1p-64f);
      emulator::forward(tensors.problem, tensors.args(), 1);
      for (int64_t row = 0; row < 20; ++row) {
        std::vector<double> right(16);
        double lse = 0;
        cpu::reference_row(problem, tensors.args(), 0, 0, row, right.data(), &lse, nullptr);
        ASSERT_NEAR(tensors.lse.as<float>()[row], lse, 2e-5 * std::max(1.0, std::abs(lse))) << dtype << " " << scale;
        for (int64_t d = 0; d < 16; ++d)
          ASSERT_NEAR(load_element(tensors.o.data(), problem.dtype, row * 16 + d), right[static_cast<size_t>(d)], 0.02)
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

TEST(EmulatedMerge, AgreesWithTheOneOnTheCpu) {
  constexpr int64_t batch = 2, heads = 3, rows = 5, dim = 70, parts = 37;
  constexpr int64_t elements = batch * heads * rows * dim, lines = batch * heads * rows;
  cpu::Threads threads{attune_options{}};
  for (const attune_dtype part_dtype : {ATTUNE_F16, ATTUNE_BF16, ATTUNE_F32})
    for (const attune_dtype dtype : {ATTUNE_F16, ATTUNE_BF16, ATTUNE_F32}) {
      const attune_merge_desc desc = test::dense_merge_desc(part_dtype, dtype, parts, batch, heads, rows, dim);
      std::vector<std::vector<float>> part_o(parts), part_lse(parts);
      std::vector<const void*> part_o_pointers;
      std::vector<const float*> part_lse_pointers;
      uint32_t state = 1;
      const auto number = [&] {
        return static_cast<float>(static_cast<int32_t>(state = state * 1664525 + 1013904223)) * 0x1p-28f;
      };
      for (int i = 0; i < parts; ++i) {
        part_o[i].resize(elements);
        for (int64_t at = 0; at < elements; ++at) store_element(part_o[i].data(), Dtype(part_dtype), at, number());
        for (int64_t at = 0; at < lines; ++at) part_lse[i].push_back(number());
        // Rows with a part that sees nothing, whose values are not to be read, and a row that sees nothing at all.
        if (i % 4 == 1) part_lse[i][2] = -INFINITY;
        if (i % 4 == 1) store_element(part_o[i].data(), Dtype(part_dtype), 2 * dim, NAN);
        part_lse[i][3] = -INFINITY;
        part_o_pointers.push_back(part_o[i].data());
        part_lse_pointers.push_back(part_lse[i].data());
      }
      std::vector<float> o(elements), lse(lines), right_o(elements), right_lse(lines);
      attune_merge_args args{sizeof args,     0, part_o_pointers.data(), part_lse_pointers.data(), right_o.data(),
                             right_lse.data()};
      cpu::merge(desc, args, threads);

      args.o = o.data();
      args.lse = lse.data();
      using namespace device::any_merge;
      const Params params = any::merge_params(desc, args);
      const jit::DeviceUnit unit = any::merge_unit();
      emulator::Block::launch({5, 1, 1}, unit.threads, unit.smem_bytes, 3, [&] { run<Variant{}, Config{}>(params); });
      for (int64_t at = 0; at < elements; ++at)
        EXPECT_NEAR(load_element(o.data(), Dtype(dtype), at), load_element(right_o.data(), Dtype(dtype), at), 1e-6);
      for (int64_t at = 0; at < lines; ++at)
        if (std::isinf(right_lse[at]))
          EXPECT_EQ(lse[at], right_lse[at]);
        else
          EXPECT_NEAR(lse[at], right_lse[at], 1e-6);
    }
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

}  // namespace
}  // namespace attune
