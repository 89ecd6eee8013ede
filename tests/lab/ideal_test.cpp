// Ideal does what its definition says, written out here a second time in the plainest way.
#include "lab/check/ideal.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <span>

#include "lab/check/dtype.hpp"
#include "lab/check/gate.hpp"
#include "tests/lab/lab_fixture.hpp"
#include "tests/support/budget.hpp"

namespace attune::lab {
namespace {

class IdealTest : public Lab {};

TEST(Dtype, UlpsAndRounding) {
  EXPECT_EQ(ulp_at(Dtype::f16, 1), 0x1p-10);
  EXPECT_EQ(ulp_at(Dtype::bf16, 1.99), 0x1p-7);
  EXPECT_EQ(ulp_at(Dtype::f32, -4), 0x1p-21);
  EXPECT_EQ(ulp_at(Dtype::f16, 1e-6), 0x1p-24) << "subnormal";
  EXPECT_EQ(ulp_at(Dtype::f16, 0), 0x1p-24);
  EXPECT_EQ(ulp_at(Dtype::f32, 0), 0x1p-149);
  EXPECT_EQ(round_to(Dtype::f16, 1 + 0x1p-11), 1.0) << "a tie goes to even";
  EXPECT_EQ(round_to(Dtype::f16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10) << "one rounding, not two";
  EXPECT_EQ(round_to(Dtype::bf16, 1 + 3 * 0x1p-8), 1 + 0x1p-6);
  EXPECT_EQ(round_to(Dtype::f16, 65519.0), 65504.0);
  EXPECT_TRUE(std::isinf(round_to(Dtype::f16, 65520.0)));
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32})
    for (const float x : {0.1f, -3.7f, 1e-5f, 6e-8f, 123.456f})
      EXPECT_EQ(round_to(dtype, static_cast<double>(x)), static_cast<double>(round_to(dtype, x)));
}

TEST_F(IdealTest, FollowsItsDefinition) {
  for (const char* text : {"fwd b1 h1/1 q5 k37 d9/11 f16", "fwd b1 h1/1 q5 k37 d9/11 bf16"}) {
    const Tensors t = inputs(text);
    const Problem& p = t.problem;
    const auto at = [&](const Buffer& buffer, int64_t index) { return load_element(buffer.data(), p.dtype, index); };
    const auto factor = static_cast<float>(static_cast<double>(p.scale) * std::numbers::log2e);
    std::vector<RowId> ids;
    for (int64_t row = 0; row < p.seq_q; ++row) ids.push_back({0, 0, row});
    const Ideal ideal = ideal_rows(t, ids, threads_);
    for (int64_t row = 0; row < p.seq_q; ++row) {
      std::vector<float> s(static_cast<size_t>(p.seq_k));
      float m = -INFINITY;
      for (int64_t j = 0; j < p.seq_k; ++j) {
        for (int64_t c = 0; c < p.dim_qk; ++c)
          s[j] = std::fma(at(t[Operand::q], row * p.q.row + c), at(t[Operand::k], j * p.k.row + c), s[j]);
        m = std::max(m, s[j] * factor);
      }
      for (int64_t c = 0; c < p.dim_v; ++c) {
        double sum = 0, l = 0;
        for (int64_t j = 0; j < p.seq_k; ++j) {
          const float weight = round_to(p.dtype, std::exp2(std::fma(s[j], factor, -m)));
          sum += static_cast<double>(weight) * static_cast<double>(at(t[Operand::v], j * p.v.row + c));
          l += static_cast<double>(weight);
        }
        const double expected = round_to(p.dtype, sum / l);
        EXPECT_NEAR(static_cast<double>(ideal.o[row * p.dim_v + c]), expected, 1e-12) << text;
      }
    }
  }
}

TEST_F(IdealTest, OneKeyIsExact) {
  for (const char* text : {"fwd b1 h2/1 q5 k1 d16 f16", "fwd b1 h2/1 q5 k1 d16 bf16", "fwd b1 h2/1 q5 k1 d16 f32"}) {
    const Tensors t = inputs(text);
    const RowId id{0, 1, 3};
    const Ideal ideal = ideal_rows(t, std::span(&id, 1), threads_);
    for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(ideal.o[c], load_element(t[Operand::v].data(), t.problem.dtype, c));
  }
}

TEST_F(IdealTest, RowsThatSeeNothingAreZero) {
  const Tensors t = inputs("fwd b2 h1/1 q9 k4 d8 f16 causal-br used-q");
  const RowChoice rows = choose_rows(t, {}, 1);
  const Ideal ideal = ideal_rows(t, rows.rows, threads_);
  const ReferenceRows truth = reference_->rows(t, rows.rows);
  int empty = 0;
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    if (truth.lse[i] != -INFINITY) continue;
    ++empty;
    for (size_t c = 0; c < 8; ++c) EXPECT_EQ(ideal.o[i * 8 + c], 0);
    EXPECT_EQ(ideal.rows[i].expected_energy, 0);
  }
  EXPECT_GT(empty, 5);
}

// The model of its own error that Ideal carries is the error it has, on many rows, for every kind of input.
TEST_F(IdealTest, ExpectedErrorIsTheErrorItHas) {
  const std::vector<const char*> all_dtypes = {"bf16", "f16", "f32"};
  for (const char* dtype : std::span(all_dtypes).first(test::small_budget() ? 1 : 3)) {
    for (const InputKind kind : {InputKind::normal, InputKind::heavy_tailed, InputKind::outlier_channel,
                                 InputKind::far_negative, InputKind::extremes}) {
      const Tensors t = inputs(fmt::format("fwd b1 h4/4 q256 k200 d64 {}", dtype), kind, 11);
      const RowChoice rows = choose_rows(t, {}, 1);
      const ReferenceRows truth = reference_->rows(t, rows.rows);
      const Ideal ideal = ideal_rows(t, rows.rows, threads_);
      double real = 0, expected = 0;
      for (size_t i = 0; i < truth.o.size(); ++i) {
        const double error = static_cast<double>(ideal.o[i]) - truth.o[i];
        real += error * error;
      }
      for (const Ideal::Row& row : ideal.rows) expected += row.expected_energy;
      const double ratio = std::sqrt(real / expected);
      EXPECT_GT(ratio, 0.4) << dtype << " " << name_of(kind);
      EXPECT_LT(ratio, 1.3) << dtype << " " << name_of(kind);
    }
  }
}

TEST_F(IdealTest, LogitsAreFoundLarge) {
  const Tensors t = inputs("fwd b1 h1/1 q4 k30 d64 f16", InputKind::far_negative);
  const RowId id{0, 0, 2};
  EXPECT_NEAR(ideal_rows(t, std::span(&id, 1), threads_).rows[0].max_logit, 1e5, 2e3);
}

}  // namespace
}  // namespace attune::lab
