// The gate lets a good result pass and finds each kind of fault.
#include "lab/check/gate.hpp"

#include <cmath>

#include <toml++/toml.h>

#include "core/error.hpp"
#include "lab/check/calibrate.hpp"
#include "lab/check/dtype.hpp"
#include "tests/lab/lab_fixture.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

// A problem with its truth, and outputs that are the truth rounded; tests then spoil them.
class Gate : public Lab {
 protected:
  void prepare(const std::string& problem, InputKind kind = InputKind::normal, uint64_t seed = 1) {
    tensors_ = inputs(problem, kind, seed);
    rows_ = choose_rows(tensors_, {}, 1);
    truth_ = reference_->rows(tensors_, rows_.rows);
    ideal_ = ideal_rows(tensors_, rows_.rows, threads_);
    for (size_t i = 0; i < rows_.rows.size(); ++i) {
      for (int64_t c = 0; c < tensors_.problem.dim_v; ++c) set(i, c, truth_.o[i * dim() + static_cast<size_t>(c)]);
      if (tensors_[Operand::lse].allocated()) lse(i) = static_cast<float>(truth_.lse[i]);
    }
  }

  size_t dim() const { return static_cast<size_t>(tensors_.problem.dim_v); }

  int64_t offset(size_t i, const attune_strides& strides) const {
    const RowId& id = rows_.rows[i];
    return row_offset(tensors_.problem, strides, id.batch, tensors_.sequence(id.batch).first_row_q, id.row, id.head);
  }
  void set(size_t i, int64_t channel, double value) {
    store_element(tensors_[Operand::o].data(), tensors_.problem.dtype, offset(i, tensors_.problem.o) + channel,
                  static_cast<float>(round_to(tensors_.problem.dtype, value)));
  }
  float& lse(size_t i) { return tensors_[Operand::lse].as<float>()[offset(i, tensors_.problem.lse)]; }

  Judgement judgement() const { return judge(tensors_, rows_, truth_, ideal_, frozen_accuracy()); }

  Tensors tensors_;
  RowChoice rows_;
  ReferenceRows truth_;
  Ideal ideal_;
};

constexpr const char* plain = "fwd b1 h2/1 q150 k200 d32 f16 causal-br";

TEST_F(Gate, TruthRoundedPasses) {
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    for (const InputKind kind : all_input_kinds) {
      prepare(fmt::format("fwd b1 h2/1 q70 k130 d32 {} causal-br", dtype), kind);
      const Judgement j = judgement();
      EXPECT_TRUE(j.ok) << dtype << " " << name_of(kind) << ": " << j.failure;
      EXPECT_LE(j.max_ulp, 0.5001);
      EXPECT_LE(j.rel_rms, j.rel_rms_ideal * 1.0001);
    }
  }
}

TEST_F(Gate, OneWrongElementIsFound) {
  prepare(plain);
  set(77, 5, truth_.o[77 * 32 + 5] + 0.05);
  const Judgement j = judgement();
  EXPECT_FALSE(j.ok);
  EXPECT_EQ(j.worst, rows_.rows[77]);
  EXPECT_GT(j.max_ulp, j.max_ulp_bound);
  EXPECT_EQ(j.strained_by(), "max_ulp");
  EXPECT_GT(j.strain(), 1);
}

TEST_F(Gate, NotANumberIsFound) {
  prepare(plain);
  set(3, 0, std::nan(""));
  const Judgement j = judgement();
  EXPECT_FALSE(j.ok);
  EXPECT_TRUE(std::isinf(j.max_ulp));
  EXPECT_EQ(j.worst, rows_.rows[3]);
}

// Half an ulp everywhere is less than any element alone may be off, but the RMS tells.
TEST_F(Gate, TwiceTheErrorOfIdealIsFound) {
  prepare(plain);
  for (size_t i = 0; i < truth_.o.size(); ++i) {
    const double error = static_cast<double>(ideal_.o[i]) - truth_.o[i];
    store_element(tensors_[Operand::o].data(), Dtype::f16,
                  offset(i / 32, tensors_.problem.o) + static_cast<int64_t>(i % 32),
                  static_cast<float>(truth_.o[i] + 2.2 * error));
  }
  const Judgement j = judgement();
  EXPECT_FALSE(j.ok);
  EXPECT_NE(j.failure.find("relative RMS"), std::string::npos) << j.failure;
}

TEST_F(Gate, LseIsHeldToItsBound) {
  prepare(plain);
  lse(10) += 3e-5f * std::max(1.0f, std::abs(lse(10)));
  const Judgement j = judgement();
  EXPECT_FALSE(j.ok);
  EXPECT_EQ(j.worst, rows_.rows[10]);
  EXPECT_EQ(j.strained_by(), "lse");
  lse(10) = static_cast<float>(truth_.lse[10]);
  EXPECT_TRUE(judgement().ok);
}

TEST_F(Gate, EmptyRowsAreZeroAndMinusInfinity) {
  const char* problem = "fwd b1 h1/1 q20 k8 d16 f16 causal-br";
  prepare(problem);
  ASSERT_EQ(truth_.lse[0], -INFINITY);
  EXPECT_TRUE(judgement().ok);
  set(0, 3, 1e-7);
  EXPECT_FALSE(judgement().ok);
  prepare(problem);
  lse(0) = -1e30f;
  EXPECT_FALSE(judgement().ok);
  prepare(problem);
  lse(19) = -INFINITY;
  EXPECT_FALSE(judgement().ok);
}

TEST_F(Gate, ManyRowsAreHeldToIdealItself) {
  prepare("fwd b1 h4/4 q256 k100 d32 bf16");
  EXPECT_GT(effective_rows(ideal_), 256);
  const Judgement j = judgement();
  EXPECT_DOUBLE_EQ(j.rel_rms_bound, 1.5 * j.rel_rms_ideal);
}

TEST_F(Gate, FewRowsGetRoomForTheirLuck) {
  prepare("fwd b1 h1/1 q3 k5 d4 bf16");
  const Judgement j = judgement();
  EXPECT_GT(j.rel_rms_bound, 1.5 * j.rel_rms_ideal);
  EXPECT_LT(j.rel_rms_bound, 8 * unit_roundoff(Dtype::bf16)) << "but not much";
}

TEST_F(Gate, LargeLogitsAreAllowedMore) {
  prepare("fwd b1 h4/4 q256 k100 d32 bf16", InputKind::far_negative);
  const Judgement j = judgement();
  EXPECT_GT(j.max_logit, 1024);
  EXPECT_GE(j.rel_rms_bound, 3 * j.rel_rms_ideal);
}

TEST_F(Gate, SinksOutOfReachLeaveTheExpectedErrorFinite) {
  prepare("fwd b1 h4/4 q64 k64 d16 f32 sink", InputKind::outlier_channel);
  for (const Ideal::Row& row : ideal_.rows) EXPECT_TRUE(std::isfinite(row.expected_energy));
  const double expected = expected_error_norm(ideal_, 1);
  for (int64_t head = 0; head < 4; ++head) tensors_[Operand::sink].as<float>()[head] = 1e4f;
  ideal_ = ideal_rows(tensors_, rows_.rows, threads_);
  for (const Ideal::Row& row : ideal_.rows) EXPECT_TRUE(std::isfinite(row.expected_energy));
  EXPECT_LT(expected_error_norm(ideal_, 1), expected);
}

TEST_F(Gate, RowsWithoutIdealAreHeldToUlps) {
  prepare(plain);
  ideal_ = ideal_rows(tensors_, std::span(rows_.rows).subspan(0, 40), threads_);
  EXPECT_TRUE(judgement().ok);
  set(200, 1, truth_.o[200 * 32 + 1] * 1.2 + 0.1);
  EXPECT_FALSE(judgement().ok);
}

TEST(Accuracy, FrozenFileIsWhatIsCompiledIn) {
  const toml::table file = toml::parse_file(test::repo() + "/tests/accuracy.toml");
  EXPECT_EQ(frozen_accuracy().max_ulp(Dtype::bf16), file["max_ulp"]["bf16"].value<double>());
  EXPECT_EQ(frozen_accuracy().rms_factor, 1.5);
  EXPECT_EQ(frozen_accuracy().rms_factor_large_logit, 3);
  EXPECT_EQ(frozen_accuracy().lse_bound, 2e-5);
  const Accuracy high = frozen_accuracy().of(parse_problem("fwd b1 h1/1 q1 k1 d8 f32 high"));
  EXPECT_EQ(high.max_ulp(Dtype::f32), 96);
  EXPECT_EQ(high.rms_bound(Dtype::f32, 1), 96);
  EXPECT_EQ(high.lse_bound, 4e-5);
  EXPECT_EQ(frozen_accuracy().of(parse_problem("fwd b1 h1/1 q1 k1 d8 f32")).max_ulp(Dtype::f32), 3);
  EXPECT_THROW(accuracy_from("[rms]\nfactor = 1.5"), Error);
  EXPECT_THROW(accuracy_from("[rms"), Error);
}

// The constants still are what the calibration gives: Ideal stays well below them, and they are not loose.
TEST_F(Gate, ConstantsFitTheCalibration) {
  const Calibration calibration = calibrate(*reference_, threads_, 99, 1, test::small_budget() ? 1 : 8);
  EXPECT_EQ(calibration.by_dtype.size(), 3u);
  for (const auto& [dtype, entry] : calibration.by_dtype) {
    const double constant = frozen_accuracy().max_ulp(dtype);
    EXPECT_LT(entry.max_ulp, 0.67 * constant) << name_of(dtype) << ": " << reproducer(entry.where);
    EXPECT_LT(constant, 4 * entry.max_ulp) << name_of(dtype);
  }
}

}  // namespace
}  // namespace attune::lab
