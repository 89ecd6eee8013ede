// What every CPU kernel owes, by comparison with the float64 reference: all features, empty rows, sinks, extreme
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/cpu/support.hpp"
#include "tests/support/budget.hpp"

namespace attune::test {
namespace {

using ::testing::HasSubstr;

constexpr float infinity = std::numeric_limits<float>::infinity();

using CpuKernels = CpuKernel;
ATTUNE_FOR_EACH_CPU_KERNEL(CpuKernels);

// A call over contiguous tensors, filled.
ForwardCall filled(const std::string& problem, uint64_t seed = 1, void (*change)(attune_forward_desc&) = nullptr) {
  attune_forward_desc desc = desc_from(parse_problem(problem));
  desc.features |= ATTUNE_LSE;
  if (change != nullptr) change(desc);
  ForwardCall call(desc);
  Numbers numbers(seed);
  call.fill_lengths(numbers);
  call.fill_values(numbers);
  return call;
}

float o_at(const ForwardCall& call, int64_t index) {
  return load_element(call.o.data(), static_cast<Dtype>(call.desc.dtype), index);
}
float lse_at(const ForwardCall& call, int64_t index) { return static_cast<const float*>(call.lse.data())[index]; }

double work_of(const attune_forward_desc& d) {
  return static_cast<double>(d.batch * d.heads_q * d.seq_q) * static_cast<double>(d.seq_k * (d.dim_qk + d.dim_v));
}

TEST_P(CpuKernels, RandomProblemsMatchTheReference) {
  const ForcedContext context(GetParam());
  for (int i = 0; i < budget(300); ++i) {
    const auto seed = static_cast<uint64_t>(1000 + i);
    Numbers numbers(seed);
    attune_forward_desc desc = random_desc(numbers);
    while (work_of(desc) > 1e7) desc = random_desc(numbers);
    ForwardCall call(desc);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << "seed " << seed << ": " << attune_last_error();
    expect_reference(call, "seed " + std::to_string(seed) + " " + to_string(problem_from(desc)));
    ASSERT_TRUE(call.o.padding_is_untouched()) << "seed " << seed;
    ASSERT_TRUE(call.lse.padding_is_untouched()) << "seed " << seed;
    if (HasFatalFailure()) return;
  }
}

// Decoding reads memory in its order if a task takes all KV heads, or as many as leave tasks enough.
TEST(CpuPlans, DecodingTakesAsManyHeadsAtOnceAsItCan) {
  const ForcedContext context("cpu/portable");
  for (const auto& [problem, heads] : {std::pair("fwd b64 h8/8 q1 k70 d64 bf16", 8),
                                       {"fwd b64 h7/7 q1 k70 d64 f16", 7},
                                       {"fwd b64 h10/10 q1 k70 d64 f32", 10},
                                       {"fwd b64 h24/24 q1 k70 d64 bf16", 12},
                                       {"fwd b64 h17/17 q1 k70 d64 bf16", 1},
                                       {"fwd b32 h6/6 q1 k70 d64 f16", 3},
                                       {"fwd b16 h6/6 q1 k3000 d64 f16", 6},
                                       {"fwd b64 h7/7 q1 k70 d64 f16 bhsd", 1}}) {
    const attune_forward_desc desc = desc_from(parse_problem(problem));
    char text[4096];
    ASSERT_EQ(attune_explain(context.get(), &desc, text, sizeof text, nullptr), ATTUNE_OK) << attune_last_error();
    EXPECT_THAT(std::string(text), HasSubstr("rows of " + std::to_string(heads) + " KV heads")) << problem;
  }
}

// Decoding with enough batches for a task to take several KV heads at once.
TEST_P(CpuKernels, DecodingOfManyHeadsMatchesTheReference) {
  std::vector<const char*> problems = {"fwd b64 h8/4 q1 k70 d64 bf16",
                                       "fwd b64 h7/7 q1 k70 d40 f32",
                                       "fwd b33 h12/6 q1 k90 d40/72 f16 bias=bhqk mask=b1qk",
                                       "fwd b64 h8/2 q2 k40 d64 bf16 var",
                                       "fwd b32 h24/8 q1 k150 d72/40 bf16 used-k sink",
                                       "fwd b16 h16/8 q2 k600 d33 bf16 causal-br w100,0",
                                       "fwd b24 h8/8 q1 k1100 d64 f32 used-k"};
  if (small_budget()) problems.resize(4);
  for (const char* text : problems) {
    ForwardCall call = filled(text);
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    ASSERT_TRUE(call.o.padding_is_untouched()) << text;
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuKernels, ARowWithoutKeysIsZeroAndMinusInfinity) {
  const ForcedContext context(GetParam());
  // Bottom-right with fewer keys than rows: the first rows see nothing.
  for (const char* text : {"fwd b1 h8/2 q50 k30 d64 f16 causal-br", "fwd b1 h1/1 q50 k30 d16 f32 causal-br",
                           "fwd b2 h2/2 q2 k1 d40 bf16 causal-br", "fwd b1 h4/4 q20 k0 d64 f16"}) {
    ForwardCall call = filled(text);
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    const attune_forward_desc& d = call.desc;
    const int64_t empty_rows = d.seq_q - d.seq_k;
    for (int64_t row = 0; row < empty_rows; ++row) {
      EXPECT_EQ(lse_at(call, row * d.lse.row), -infinity) << text << " row " << row;
      for (int64_t j = 0; j < d.dim_v; ++j) EXPECT_EQ(o_at(call, row * d.o.row + j), 0.0f) << text << " row " << row;
    }
  }
}

TEST_P(CpuKernels, ASinkOnAnEmptyRowIsItsLse) {
  for (const char* text : {"fwd b1 h4/2 q50 k30 d64 f16 causal-br sink", "fwd b1 h2/2 q2 k0 d16 f32 sink"}) {
    ForwardCall call = filled(text);
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    for (int64_t head = 0; head < call.desc.heads_q; ++head) {
      EXPECT_EQ(lse_at(call, head * call.desc.lse.head), call.sink[static_cast<size_t>(head)]) << text;
      EXPECT_EQ(o_at(call, head * call.desc.o.head), 0.0f) << text;
    }
  }
}

TEST_P(CpuKernels, RowsNotInUseAreZeroEvenWithASink) {
  for (const char* text : {"fwd b3 h2/2 q40 k30 d32 bf16 sink", "fwd b3 h1/1 q2 k30 d32 f16 sink"}) {
    ForwardCall call = filled(text, 2, [](attune_forward_desc& d) { d.features |= ATTUNE_USED_Q | ATTUNE_USED_K; });
    const auto rows = static_cast<int32_t>(call.desc.seq_q);
    call.used_q = {0, rows / 2, rows};
    call.used_k = {30, 30, 0};
    Numbers numbers(5);
    call.fill_values(numbers);
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    EXPECT_EQ(lse_at(call, 0), -infinity);
    EXPECT_EQ(lse_at(call, call.desc.lse.batch + (rows - 1) * call.desc.lse.row), -infinity);
    EXPECT_EQ(lse_at(call, 2 * call.desc.lse.batch), call.sink[0]);
  }
}

// All keys masked or biased away is the same as no key, and what V holds there does not matter.
TEST_P(CpuKernels, HiddenByMaskOrBiasIsHidden) {
  for (const char* text : {"fwd b1 h2/2 q30 k40 d32 f16 mask=11qk", "fwd b1 h2/2 q30 k40 d32 f32 bias=11qk",
                           "fwd b1 h1/1 q2 k40 d32 f32 bias=11qk", "fwd b1 h1/1 q2 k200 d32 bf16 mask=11qk"}) {
    ForwardCall call = filled(text);
    const attune_forward_desc& d = call.desc;
    const bool masked = call.has(ATTUNE_MASK);
    for (int64_t row = 0; row < d.seq_q; ++row)
      for (int64_t key = 0; key < d.seq_k; ++key) {
        const bool hide = row == 0 || key == 7;
        if (masked)
          static_cast<uint8_t*>(call.mask.data())[row * d.mask.query + key] = hide ? 0 : 1;
        else
          store_element(call.bias.data(), static_cast<Dtype>(d.bias_dtype), row * d.bias.query + key,
                        hide ? -infinity : 0.25f);
      }
    for (int64_t head = 0; head < d.heads_kv; ++head)
      for (int64_t j = 0; j < d.dim_v; ++j)
        store_element(call.v.data(), static_cast<Dtype>(d.dtype), 7 * d.v.row + head * d.v.head + j,
                      j % 2 == 0 ? infinity : std::nanf(""));
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    EXPECT_EQ(lse_at(call, 0), -infinity) << text;
  }
}

// Products of q and k are exact then: no large factor turns a rounding error into another winner.
void fill_with_integers(ForwardCall& call, Numbers& numbers) {
  for (TensorMemory* tensor : {&call.q, &call.k})
    tensor->for_each([&](const auto&, int64_t offset) {
      for (int64_t i = 0; i < tensor->dim(); ++i)
        store_element(tensor->data(), static_cast<Dtype>(call.desc.dtype), offset + i,
                      static_cast<float>(numbers.in(-4, 4)));
    });
}

TEST_P(CpuKernels, ExtremeScalesGiveNumbers) {
  const ForcedContext context(GetParam());
  for (const float scale : {0.0f, -0.5f, 1e-30f, 1e-44f, 30.0f, -1e4f, 1e30f, 3e38f, -3e38f})
    for (const uint32_t feature : {0u, ATTUNE_BIAS, ATTUNE_SOFTCAP, ATTUNE_BIAS | ATTUNE_SOFTCAP})
      for (const char* text : {"fwd b1 h2/1 q33 k70 d16 f32 causal-br", "fwd b1 h4/1 q33 k70 d16 f32 causal-br",
                               "fwd b1 h2/1 q33 k70 d16 bf16 causal-br", "fwd b1 h2/1 q33 k70 d16 f16 causal-br",
                               "fwd b1 h1/1 q1 k70 d16 f16"}) {
        attune_forward_desc desc = desc_from(parse_problem(text));
        desc.features |= ATTUNE_SCALE | ATTUNE_LSE | feature;
        desc.scale = scale;
        desc.softcap = 5;
        desc.bias_dtype = desc.dtype;
        desc.bias = {0, 0, desc.seq_k, 1};
        ForwardCall call(desc);
        Numbers numbers(9);
        call.fill_values(numbers);
        fill_with_integers(call, numbers);
        ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
        // A score beyond the range of float is an infinite LSE in float32, a finite one in float64.
        const Problem problem = problem_from(desc);
        const attune_forward_args args = call.args();
        for (int64_t row = 0; row < desc.seq_q; ++row) {
          std::vector<double> expected(static_cast<size_t>(desc.dim_v));
          double lse = 0, largest = 0;
          cpu::reference_row(problem, operands_of(args), 0, 0, row, expected.data(), &lse, &largest);
          // Without a bias everything up to the weights is exact. A bias added to a large score is rounded.
          const double bound = 2 * tolerance(desc.dtype, feature == ATTUNE_BIAS ? std::min(largest, 1e6) : 10);
          for (int64_t j = 0; j < desc.dim_v; ++j)
            ASSERT_NEAR(o_at(call, row * desc.o.row + j), expected[static_cast<size_t>(j)], bound)
                << text << " scale " << scale << " features " << feature << " row " << row;
          const float got = lse_at(call, row * desc.lse.row);
          const auto rounded = static_cast<float>(lse);
          if (std::isinf(rounded))
            ASSERT_EQ(got, rounded) << text << " scale " << scale;
          else
            ASSERT_NEAR(got, lse, 2e-5 * std::max(1.0, std::abs(lse))) << text << " scale " << scale;
        }
      }
}

// Scores of a few units by scales as large as there are: tiny sums must not be flushed, and the LSE and the weights
// must follow the same scale.
TEST_P(CpuKernels, HugeScalesOfTinyScoresAreExact) {
  const ForcedContext context(GetParam());
  for (const float scale : {0x1p100f, 2.3e38f, 2.4e38f, 3.4e38f, -3.4e38f})
    for (const uint32_t feature : {0u, ATTUNE_BIAS, ATTUNE_SOFTCAP, ATTUNE_BIAS | ATTUNE_SOFTCAP})
      for (const char* text :
           {"fwd b1 h2/2 q40 k70 d16 f32", "fwd b1 h2/2 q40 k70 d16 bf16", "fwd b1 h4/1 q1 k70 d16 bf16",
            "fwd b1 h2/1 q1 k70 d16 bf16", "fwd b1 h1/1 q1 k70 d16 f32", "fwd b1 h2/2 q200 k70 d16 f32"}) {
        attune_forward_desc desc = desc_from(parse_problem(text));
        desc.features |= ATTUNE_SCALE | ATTUNE_LSE | feature;
        desc.scale = scale;
        desc.softcap = 0.5f;
        desc.bias_dtype = desc.dtype;
        desc.bias = {0, 0, desc.seq_k, 1};
        ForwardCall call(desc);
        Numbers numbers(31);
        call.fill_values(numbers);
        fill_with_integers(call, numbers);
        const float unit = std::exp2(-std::ceil(std::log2(std::abs(scale)) / 2)) / 4;  // scores of -16..16
        for (TensorMemory* tensor : {&call.q, &call.k})
          tensor->for_each([&](const auto&, int64_t offset) {
            for (int64_t i = 0; i < tensor->dim(); ++i) {
              const auto dtype = static_cast<Dtype>(desc.dtype);
              store_element(tensor->data(), dtype, offset + i, load_element(tensor->data(), dtype, offset + i) * unit);
            }
          });
        ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
        expect_reference(call,
                         std::string(text) + " scale " + std::to_string(scale) + " feature " + std::to_string(feature));
        if (HasFatalFailure()) return;
      }
}

// docs/accuracy.md: the sum of the values may be infinite where their mean is not, but it is no NaN.
TEST_P(CpuKernels, SumsOfHugeValuesAreRightOrInfinite) {
  const ForcedContext context(GetParam());
  for (const char* text :
       {"fwd b1 h1/1 q1 k50 d16 f32", "fwd b1 h1/1 q40 k50 d16 f32", "fwd b1 h1/1 q200 k50 d16 f32",
        "fwd b1 h1/1 q1 k50 d16 bf16", "fwd b1 h4/1 q1 k50 d16 bf16", "fwd b1 h1/1 q40 k50 d16 bf16"})
    for (const float value : {3.3e38f, 6e36f}) {
      attune_forward_desc desc = desc_from(parse_problem(text));
      ForwardCall call(desc);
      const auto fill = [&](TensorMemory& tensor, float with) {
        tensor.for_each([&](const auto&, int64_t offset) {
          for (int64_t i = 0; i < tensor.dim(); ++i)
            store_element(tensor.data(), static_cast<Dtype>(desc.dtype), offset + i, with);
        });
      };
      fill(call.q, 1);
      fill(call.k, 1);
      fill(call.v, value);
      ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      const float o = o_at(call, 0);
      const bool fits = value * 50 < std::numeric_limits<float>::infinity();
      EXPECT_TRUE(std::abs(o / value - 1) < 0.01 || (!fits && o == std::numeric_limits<float>::infinity()))
          << text << " of " << value << " gives " << o;
    }
}

// Every other row of q is multiplied by a power of 2. The rows between have the same bits whatever it is.
TEST_P(CpuKernels, HugeScoresBesideOrdinaryOnes) {
  const ForcedContext context(GetParam());
  for (const char* text : {"fwd b1 h2/1 q70 k90 d64 bf16", "fwd b1 h1/1 q4 k90 d64 bf16", "fwd b1 h2/1 q30 k90 d64 f32",
                           "fwd b1 h2/1 q70 k90 d64 f32"}) {
    const attune_forward_desc desc = desc_from(parse_problem(text));
    const Problem problem = problem_from(desc);
    std::vector<float> ordinary;
    for (const float factor : {1.0f, 0x1p8f, 0x1p12f, 0x1p20f, 0x1p40f, 0x1p110f}) {
      ForwardCall call(desc);
      Numbers numbers(11);
      call.fill_values(numbers);
      fill_with_integers(call, numbers);
      call.q.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
        for (int64_t i = offset; i < offset + desc.dim_qk && at[1] % 2 == 1; ++i)
          store_element(call.q.data(), problem.dtype, i, factor * load_element(call.q.data(), problem.dtype, i));
      });
      const attune_forward_args args = call.args();
      ASSERT_EQ(context.forward(desc, args), ATTUNE_OK) << attune_last_error();
      std::vector<float> o;
      for (int64_t head = 0; head < desc.heads_q; ++head) {
        for (int64_t row = 0; row < desc.seq_q; ++row) {
          std::vector<double> expected(static_cast<size_t>(desc.dim_v));
          double lse = 0, largest = 0;
          cpu::reference_row(problem, operands_of(args), 0, head, row, expected.data(), &lse, &largest);
          for (int64_t j = 0; j < desc.dim_v; ++j) {
            o.push_back(o_at(call, row * desc.o.row + head * desc.o.head + j));
            ASSERT_NEAR(o.back(), expected[static_cast<size_t>(j)], 2 * tolerance(desc.dtype, 10))
                << text << ", q times " << factor << ", row " << row << " of head " << head;
            if (factor != 1 && row % 2 == 0) {
              ASSERT_EQ(o.back(), ordinary[o.size() - 1]) << text << ", row " << row;
            }
          }
        }
      }
      if (factor == 1) ordinary = o;
    }
  }
}

TEST_P(CpuKernels, LogitsNearMinusHundredThousand) {
  for (const char* text :
       {"fwd b1 h2/1 q20 k300 d64 f32", "fwd b1 h2/1 q20 k300 d64 bf16 causal-tl", "fwd b1 h1/1 q1 k700 d64 f16"}) {
    ForwardCall call = filled(text);
    const attune_forward_desc& d = call.desc;
    call.q.for_each([&](const auto&, int64_t offset) {
      store_element(call.q.data(), static_cast<Dtype>(d.dtype), offset, 800.0f);
    });
    call.k.for_each([&](const auto&, int64_t offset) {
      store_element(call.k.data(), static_cast<Dtype>(d.dtype), offset, -1000.0f);
    });
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    const Problem problem = problem_from(d);
    const attune_forward_args args = call.args();
    std::vector<double> expected(static_cast<size_t>(d.dim_v));
    double lse = 0, largest = 0;
    cpu::reference_row(problem, operands_of(args), 0, 0, 0, expected.data(), &lse, &largest);
    EXPECT_NEAR(largest, 1e5, 1e3);
    EXPECT_NEAR(lse_at(call, 0), lse, 2e-5 * std::abs(lse)) << text;
    for (int64_t j = 0; j < d.dim_v; ++j)
      // Scores of this size carry a rounding of 2^-7, which moves weights by a percent.
      EXPECT_NEAR(o_at(call, j), expected[static_cast<size_t>(j)], 0.05) << text;
  }
}

// Infinite scores: -inf hides its key, +inf has no answer and must not be made into one.
TEST_P(CpuKernels, InfiniteInputs) {
  for (const char* text : {"fwd b1 h1/1 q20 k30 d8 f32", "fwd b1 h1/1 q140 k30 d8 f32", "fwd b1 h1/1 q1 k30 d8 f16"}) {
    for (const float k_value : {-infinity, infinity}) {
      ForwardCall call = filled(text);
      const auto dtype = static_cast<Dtype>(call.desc.dtype);
      call.q.for_each([&](const auto&, int64_t offset) { store_element(call.q.data(), dtype, offset, 1.0f); });
      store_element(call.k.data(), dtype, 11 * call.desc.k.row, k_value);
      ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      if (k_value < 0) {
        expect_reference(call, text);
      } else {
        for (int64_t j = 0; j < call.desc.dim_v; ++j) EXPECT_TRUE(std::isnan(o_at(call, j))) << text;
        EXPECT_TRUE(std::isnan(lse_at(call, 0))) << text;
      }
    }
  }
}

TEST_P(CpuKernels, AskingForTheLseChangesNoBitOfO) {
  const ForcedContext context(GetParam());
  const auto without_lse = [](attune_forward_desc& desc) { desc.features &= ~static_cast<uint32_t>(ATTUNE_LSE); };
  for (const char* text : {"fwd b2 h4/2 q40 k70 d64 bf16", "fwd b1 h2/2 q50 k1100 d32 bf16 causal-br",
                           "fwd b1 h1/1 q300 k600 d64 f16 sink", "fwd b1 h2/2 q33 k47 d32 f32 w7,3",
                           "fwd b1 h4/1 q1 k300 d64 bf16", "fwd b1 h2/2 q40 k90 d48 bf16 cap3"}) {
    ForwardCall with = filled(text), without = filled(text, 1, without_lse);
    ASSERT_EQ(context.forward(with.desc, with.args()), ATTUNE_OK) << attune_last_error();
    ASSERT_EQ(context.forward(without.desc, without.args()), ATTUNE_OK) << attune_last_error();
    EXPECT_TRUE(with.o.copy() == without.o.copy()) << text;
  }
}

// With one key the output is that row of V, whatever the score: every bit pattern must come through.
TEST_P(CpuKernels, EveryHalfComesThroughUnchanged) {
  const ForcedContext context(GetParam());
  for (const char* dtype : {"f16", "bf16"})
    for (const char* rows : {"q1", "q20"}) {
      attune_forward_desc desc = desc_from(parse_problem(std::string("fwd b128 h1/1 ") + rows + " k1 d4/512 " + dtype));
      ForwardCall call(desc);
      Numbers numbers(1);
      call.fill_values(numbers);
      auto* v = static_cast<uint16_t*>(call.v.data());
      for (int64_t i = 0; i < 65536; ++i) v[i] = static_cast<uint16_t>(i);
      ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      const auto* o = static_cast<const uint16_t*>(call.o.data());
      for (int64_t i = 0; i < 65536; ++i) {
        const uint16_t got = o[i / 512 * desc.o.batch + i % 512];
        const float value = load_element(v, static_cast<Dtype>(desc.dtype), i);
        if (std::isnan(value))
          ASSERT_TRUE(std::isnan(desc.dtype == ATTUNE_F16 ? f16_to_float(got) : bf16_to_float(got))) << dtype << i;
        else
          ASSERT_EQ(value == 0 ? got & 0x7fff : got, value == 0 ? 0 : i) << dtype << " " << rows << " pattern " << i;
      }
    }
}

// Two keys of equal weight: the mean of two neighbours is a tie, and ties go to even.
TEST_P(CpuKernels, OutputsRoundToNearestEven) {
  const ForcedContext context(GetParam());
  for (const char* dtype : {"f16", "bf16"})
    for (const char* rows : {"q1", "q20"}) {
      attune_forward_desc desc = desc_from(parse_problem(std::string("fwd b64 h1/1 ") + rows + " k2 d4/512 " + dtype));
      ForwardCall call(desc);
      Numbers numbers(1);
      call.fill_values(numbers);
      call.q.for_each(
          [&](const auto&, int64_t offset) { std::fill_n(static_cast<uint16_t*>(call.q.data()) + offset, 4, 0); });
      auto* v = static_cast<uint16_t*>(call.v.data());
      const auto kind = static_cast<Dtype>(desc.dtype);
      const int64_t largest = kind == Dtype::f16 ? 0x7bff : 0x7f00;
      for (int64_t i = 0; i < 32768; ++i) {
        v[i / 512 * desc.v.batch + i % 512] = static_cast<uint16_t>(std::min(i, largest));
        v[i / 512 * desc.v.batch + desc.v.row + i % 512] = static_cast<uint16_t>(std::min(i + 1, largest));
      }
      ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      const auto* o = static_cast<const uint16_t*>(call.o.data());
      for (int64_t i = 0; i < largest; ++i) {
        const int64_t expected = i % 2 == 0 ? i : i + 1;
        ASSERT_EQ(o[i / 512 * desc.o.batch + i % 512], expected)
            << dtype << " " << rows << " between " << i << " and " << i + 1;
      }
    }
}

// ATTUNE_F32_HIGH is a permission that only the tile unit makes use of (amx_test.cpp).
TEST_P(CpuKernels, WithoutTilesHighFloat32IsFloat32) {
  if (GetParam().find("amx") != std::string::npos) GTEST_SKIP() << GetParam() << " has tiles";
  ForwardCall plain = filled("fwd b1 h2/2 q70 k200 d64 f32");
  ForwardCall high = filled("fwd b1 h2/2 q70 k200 d64 f32 high");
  const ForcedContext context(GetParam());
  ASSERT_EQ(context.forward(plain.desc, plain.args()), ATTUNE_OK) << attune_last_error();
  ASSERT_EQ(context.forward(high.desc, high.args()), ATTUNE_OK) << attune_last_error();
  EXPECT_EQ(plain.o.copy(), high.o.copy());
  EXPECT_EQ(plain.lse.copy(), high.lse.copy());
}

// The error of float32 sums must not grow with the keys. With equal scores there is no other error: over 4000 keys
// from -2 to 2, one long float sum has about 0.3 * 2^-24 rms, sums of 64 keys 0.04 * 2^-24, a double sum less than
// 0.01.
TEST_P(CpuKernels, Float32SumsStayAccurateOverManyKeys) {
  struct Sums {
    const char* text;
    double most;  // in 2^-24
  };
  // The last one has too many tasks for its keys to be split; tiles that went on summing would have 0.087.
  for (const auto& [text, most] :
       {Sums{"fwd b1 h1/1 q30 k4000 d8/256 f32", 0.1}, Sums{"fwd b1 h1/1 q1 k4000 d8/256 f32", 0.1},
        Sums{"fwd b1 h32/32 q128 k12000 d8/32 f32", 0.05}}) {
    ForwardCall call = filled(text);
    const int64_t columns = call.desc.dim_v;
    call.q.for_each(
        [&](const auto&, int64_t offset) { std::fill_n(static_cast<float*>(call.q.data()) + offset, 8, 0.0f); });
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    const Problem problem = problem_from(call.desc);
    std::vector<double> expected(static_cast<size_t>(columns));
    cpu::reference_row(problem, operands_of(call.args()), 0, 0, 0, expected.data(), nullptr, nullptr);
    double squares = 0;
    for (int64_t j = 0; j < columns; ++j) {
      const double error = o_at(call, j) - expected[static_cast<size_t>(j)];
      squares += error * error;
    }
    EXPECT_LT(std::sqrt(squares / static_cast<double>(columns)), most * 0x1p-24) << text;
  }
}

}  // namespace
}  // namespace attune::test
