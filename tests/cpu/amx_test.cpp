// The levels that compute in pairs of bf16. AMX: by emulation what its instructions would compute, on every machine
// with AVX-512; and how it is reached. The kernel registered here takes part in every test of CPU kernels of this
// program.
#if defined(__x86_64__)
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "cpu/level_kernel.hpp"
#include "cpu/threads.hpp"
#include "dispatch/select.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/executor.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/check/reference.hpp"
#include "lab/check/report.hpp"
#include "lab/sets.hpp"
#include "tests/cpu/support.hpp"

namespace attune::cpu {

extern const Level amx_emulated_level;

namespace {

const char* const emulated = "cpu/amx-emulated";

class Emulated final : public LevelKernel {
 public:
  Emulated() : LevelKernel(amx_emulated_level, 1) {}
  bool selectable() const override { return false; }
  std::string refusal(const Problem&, const Context&) const override {
    if (std::string absence = cpu::refusal(avx512_level); !absence.empty()) return absence;
    return __builtin_cpu_supports("avx512bf16") ? "" : "this CPU has no avx512bf16";
  }
};
const Registration<Emulated> registration;

TEST(AmxEmulated, OneProductOfTilesIsRight) {
  if (!cpu::refusal(avx512_level).empty() || !__builtin_cpu_supports("avx512bf16"))
    GTEST_SKIP() << "this CPU cannot emulate tiles";
  EXPECT_TRUE(amx_emulated_level.works());
}

// The levels that compute in pairs of bf16: in tiles, and in vectors.
class PairsOfBf16 : public test::CpuKernel {
 protected:
  Threads threads_{attune_options{}};
  const std::unique_ptr<lab::Executor> executor_ = lab::make_cpu_executor();
  const std::unique_ptr<lab::ReferenceSource> reference_ = lab::make_cpu_reference(threads_);
  lab::Checker checker_{*executor_, *reference_, threads_};
};
INSTANTIATE_TEST_SUITE_P(Kernels, PairsOfBf16, testing::Values(std::string(emulated), std::string("cpu/avx512bf16")),
                         test::name_of_kernel);

// The gate of docs/accuracy.md, for inputs of every kind.
TEST_P(PairsOfBf16, PassesTheAccuracyGate) {
  std::vector<std::string> problems = lab::find_set("features").problems;
  problems.insert(problems.end(),
                  {"fwd b1 h2/2 q200 k1100 d64 bf16", "fwd b1 h2/1 q150 k700 d128 f16 causal-br",
                   "fwd b1 h2/2 q300 k300 d128 bf16 causal-br", "fwd b8 h8/8 q33 k1100 d32 bf16 bias=1h1k",
                   "fwd b1 h2/2 q200 k1100 d64 f32", "fwd b1 h2/1 q150 k700 d128 f32 causal-br",
                   "fwd b1 h2/2 q300 k300 d72/200 f32 w100,20 cap20"});
  const size_t step = test::small_budget() ? 13 : 1;
  for (size_t i = 0; i < problems.size(); i += step) {
    const bool is_float32 = parse_problem(problems[i]).dtype == Dtype::f32;
    for (const char* precision : {"", " high"}) {
      if (precision[0] != 0 && !is_float32) continue;
      for (const lab::InputKind input : lab::all_input_kinds) {
        if (is_float32 && i % 2 != 0 && input != lab::InputKind::normal) continue;
        lab::Case c;
        c.problem = problems[i] + precision;
        c.kernel = GetParam();
        c.input = input;
        const lab::Outcome outcome = checker_.check(c);
        EXPECT_TRUE(outcome.ok() || !outcome.unsupported.empty())
            << c.problem << " input " << lab::name_of(input) << ": " << outcome.judgement.failure;
      }
    }
  }
}

// As tests/lab does it with the kernels of this machine: a new seed each run, printed; ATTUNE_SEED repeats one. And a
// case that failed when scores of float16 were three products of their parts instead of four.
TEST_P(PairsOfBf16, RandomProblemsPassTheAccuracyGate) {
  lab::Worst worst;
  const auto check = [&](lab::Case c) {
    c.kernel = GetParam();
    const lab::Outcome outcome = checker_.check(c);
    if (!outcome.unsupported.empty()) return;
    worst.look_at(outcome);
    EXPECT_TRUE(outcome.ok()) << lab::failure_text(outcome, outcome.of);
  };
  lab::Case once;
  once.problem = "fwd b1 h1/1 q27 k11 d16 f16";
  once.input = lab::InputKind::outlier_channel;
  once.seed = 1342675781;
  check(once);
  const char* const given = std::getenv("ATTUNE_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  std::cout << "seed " << seed << "\n";
  for (uint64_t i = 0; i < (test::small_budget() ? 50 : 2000); ++i) check(lab::random_case(seed + i));
  std::cout << worst.text() << "\n";
}

// Longer than a chunk and too many heads for keys to be split, and a reference that must move again and again.
TEST_P(PairsOfBf16, ManyChunks) {
  std::vector<const char*> problems = {
      "fwd b1 h1/1 q600 k600 d64 bf16 causal-tl",    "fwd b8 h8/8 q40 k1100 d32 bf16",
      "fwd b8 h16/8 q20 k1300 d40/24 f16 causal-br", "fwd b16 h4/4 q20 k2050 d32 bf16 w600,0",
      "fwd b16 h4/4 q20 k700 d320/32 f16",           "fwd b8 h16/8 q70 k2500 d40/24 f32 causal-br"};
  if (test::small_budget()) problems.resize(1);
  for (const char* text : problems) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    test::ForwardCall call(desc);
    test::Numbers numbers(3);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    // Keys grow along the sequence.
    call.k.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
      for (int64_t i = 0; i < desc.dim_qk; ++i) {
        const auto dtype = static_cast<Dtype>(desc.dtype);
        const float value = load_element(call.k.data(), dtype, offset + i);
        store_element(call.k.data(), dtype, offset + i, value * static_cast<float>(at[1]) / 100);
      }
    });
    ASSERT_EQ(test::ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    test::expect_reference(call, text);
  }
}

// Infinities have no parts: -inf must hide its key on the tile path too, +inf must give NaN, and a row of Q
// with one must not touch the others.
TEST_P(PairsOfBf16, InfiniteKeysAndQueries) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const char* text :
       {"fwd b1 h1/1 q40 k70 d40 f16", "fwd b1 h1/1 q40 k70 d64 bf16", "fwd b1 h1/1 q140 k70 d40 f32"}) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    const auto dtype = static_cast<Dtype>(desc.dtype);
    test::ForwardCall call(desc);
    test::Numbers numbers(5);
    call.fill_values(numbers);
    call.q.for_each([&](const auto&, int64_t offset) {
      for (int64_t i = 0; i < desc.dim_qk; ++i) store_element(call.q.data(), dtype, offset + i, 1.0f);
    });
    const test::ForcedContext context(GetParam());
    store_element(call.k.data(), dtype, 11 * desc.k.row + 3, -infinity);
    ASSERT_EQ(context.forward(desc, call.args()), ATTUNE_OK) << attune_last_error();
    test::expect_reference(call, text);
    store_element(call.k.data(), dtype, 11 * desc.k.row + 3, 1.0f);
    ASSERT_EQ(context.forward(desc, call.args()), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> clean = call.o.copy();
    store_element(call.q.data(), dtype, 17 * desc.q.row, infinity);
    ASSERT_EQ(context.forward(desc, call.args()), ATTUNE_OK) << attune_last_error();
    for (int64_t row = 0; row < desc.seq_q; ++row) {
      const float got = load_element(call.o.data(), dtype, row * desc.o.row);
      EXPECT_EQ(std::isnan(got), row == 17) << text << " row " << row;
      if (row != 17) {
        EXPECT_EQ(got, load_element(clean.data(), dtype, row * desc.o.row)) << text << " row " << row;
      }
    }
  }
}

TEST_P(PairsOfBf16, RowsDoNotDependOnTheirNeighbours) {
  // Of bf16 tiles copy the keys of all rows and read those of the last in place. Of f32 both have enough rows for
  // tiles.
  for (const std::string heads_and_dtype : {"h1/1 bf16", "h1/1 f16", "h2/1 f32"}) {
    attune_forward_desc desc = desc_from(parse_problem("fwd b1 q200 k700 d64 causal-br w130,-1 " + heads_and_dtype));
    const auto bytes = static_cast<int64_t>(bytes_of(static_cast<Dtype>(desc.dtype)));
    test::ForwardCall whole(desc);
    test::Numbers numbers(8);
    whole.fill_values(numbers);
    const test::ForcedContext context(GetParam());
    ASSERT_EQ(context.forward(desc, whole.args()), ATTUNE_OK) << attune_last_error();
    // The last 77 rows alone are the same rows of a bottom-right problem.
    attune_forward_desc part = desc;
    part.seq_q = 77;
    test::ForwardCall cut(part);
    attune_forward_args args = whole.args();
    args.q = static_cast<const char*>(args.q) + 123 * desc.q.row * bytes;
    args.o = cut.o.data();
    args.lse = static_cast<float*>(cut.lse.data());
    ASSERT_EQ(context.forward(part, args), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> all = whole.o.copy();
    EXPECT_EQ(cut.o.copy(), std::vector<uint8_t>(all.begin() + 123 * desc.o.row * bytes, all.end())) << heads_and_dtype;
  }
}

// ATTUNE_F32_HIGH: float32 as two bf16 parts. On the tile unit where there is one, by emulation where there is AVX-512.
class HighFloat32 : public test::CpuKernel {
 protected:
  // The relative RMS of O, and the largest error of an LSE over max(1, |LSE|).
  struct Errors {
    double rms = 0, lse = 0;
  };
  Errors errors_of(const std::string& text) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    test::ForwardCall call(desc);
    test::Numbers numbers(5);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    EXPECT_EQ(test::ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    const Problem p = problem_from(call.desc);
    const attune_forward_args args = call.args();
    std::vector<double> expected(static_cast<size_t>(p.dim_v));
    double errors = 0, squares = 0;
    Errors result;
    for (int64_t b = 0; b < p.batch; ++b)
      for (int64_t head = 0; head < p.heads_q; ++head)
        for (int64_t row = 0; row < p.seq_q; ++row) {
          double lse = 0;
          reference_row(p, operands_of(args), b, head, row, expected.data(), &lse, nullptr);
          const float* const o = static_cast<const float*>(args.o) + b * p.o.batch + row * p.o.row + head * p.o.head;
          for (int64_t j = 0; j < p.dim_v; ++j) {
            const double wanted = expected[static_cast<size_t>(j)];
            errors += (o[j] - wanted) * (o[j] - wanted);
            squares += wanted * wanted;
          }
          const double got = args.lse[b * p.lse.batch + row * p.lse.row + head * p.lse.head];
          result.lse = std::max(result.lse, std::abs(got - lse) / std::max(1.0, std::abs(lse)));
        }
    result.rms = std::sqrt(errors / squares);
    return result;
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, HighFloat32, testing::Values(std::string("cpu/amx"), std::string(emulated)),
                         test::name_of_kernel);

TEST_P(HighFloat32, HasSixteenBits) {
  std::vector<std::string> problems = {
      "fwd b1 h1/1 q40 k90 d200 f32 w20,5 bhsd",
      "fwd b2 h4/2 q70 k300 d40/72 f32 causal-br sink",
      "fwd b1 h2/2 q200 k700 d64 f32",
      "fwd b1 h2/1 q64 k1100 d128 f32 bias=bhqk cap20",
  };
  if (test::small_budget()) problems.resize(2);
  for (const std::string& text : problems) {
    const Errors plain = errors_of(text), high = errors_of(text + " high");
    EXPECT_LT(high.rms, 0x1p-16) << text;
    EXPECT_LT(high.lse, 2e-5) << text;
    EXPECT_GT(high.rms, 2 * plain.rms) << text << ": not computed on tiles";
  }
}

// float32 as parts, three or two.
class PartsOfFloat32 : public test::CpuKernel {};
INSTANTIATE_TEST_SUITE_P(Kernels, PartsOfFloat32, testing::Values(std::string("cpu/amx"), std::string(emulated)),
                         test::name_of_kernel);

// Parts of the largest numbers would be infinite, and those of the smallest 0: neither may spoil a result.
TEST_P(PartsOfFloat32, HugeAndTinyValues) {
  for (const char* text : {"fwd b1 h1/1 q140 k33 d32 f32 causal-tl", "fwd b1 h1/1 q40 k33 d32 f32 high causal-tl"}) {
    for (const float value : {std::numeric_limits<float>::max(), -std::numeric_limits<float>::max(), 1e-38f, 1e-42f}) {
      test::ForwardCall call(desc_from(parse_problem(text)));
      test::Numbers numbers(6);
      call.fill_values(numbers);
      // Row 0 sees the first key alone.
      float* const v = static_cast<float*>(call.v.data());
      v[0] = value;
      ASSERT_EQ(test::ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      EXPECT_NEAR(static_cast<const float*>(call.o.data())[0] / value, 1.0, 1e-4) << text << ": " << value;
    }
  }
}

// What the tile unit flushes to 0 is less than 2^-126, but times the largest numbers it would count.
TEST_P(PartsOfFloat32, TinyTimesHugeScores) {
  attune_forward_desc desc = desc_from(parse_problem("fwd b1 h1/1 q140 k50 d32 f32"));
  desc.features |= ATTUNE_LSE;
  for (const float factor : {0x1p40f, 0x1p80f, 0x1p118f}) {
    test::ForwardCall call(desc);
    test::Numbers numbers(7);
    call.fill_values(numbers);
    const auto scale_by = [&](auto& tensor, float by) {
      tensor.for_each([&](const auto&, int64_t offset) {
        for (int64_t i = offset; i < offset + 32; ++i) static_cast<float*>(tensor.data())[i] *= by;
      });
    };
    scale_by(call.q, factor);
    scale_by(call.k, 1 / factor);
    ASSERT_EQ(test::ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    test::expect_reference(call, "q times " + std::to_string(factor));
  }
}

TEST(Amx, IsTheBestLevelWhereItWorksAndIsAllowed) {
  const test::LevelCap none(nullptr);
  EXPECT_EQ(std::string_view(best_level().name) == "amx", amx_absence().empty());
  const test::LevelCap without("avx512");
  EXPECT_STRNE(best_level().name, "amx");
}

// The verdict is found by trying once, and stays.
TEST(Amx, AbsenceHasAReasonAndLeavesSignalsAlone) {
  struct sigaction before{}, after{};
  sigaction(SIGILL, nullptr, &before);
  const std::string absence = amx_absence();
  sigaction(SIGILL, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  attune_options options{};
  const Context context(options);
  const Selection selection = select(parse_problem("fwd b1 h1/1 q64 k64 d64 bf16"), context, "cpu/amx");
  EXPECT_EQ(selection.chosen != nullptr, refusal(amx_level).empty());
  if (!absence.empty()) {
    EXPECT_NE(selection.why.find(absence), std::string::npos) << selection.why;
  }
}

}  // namespace
}  // namespace attune::cpu
#endif
