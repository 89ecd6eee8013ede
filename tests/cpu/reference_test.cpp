// The reference against attention worked out by hand: one feature at a time, small enough to follow.
#include "cpu/reference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/problem.hpp"

namespace attune::cpu {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// One head of one sequence with head dimension 1, in float32: scores are products of two numbers.
struct Scalars {
  explicit Scalars(const std::string& text) : problem(parse_problem(text)) {}

  void expect(int64_t row, double o, double lse) {
    attune_forward_args args{};
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.sink = sink.data();
    args.bias = bias.data();
    args.mask = mask.data();
    double got_lse = 0;
    std::vector<double> got(static_cast<size_t>(problem.dim_v));
    reference_row(problem, operands_of(args), 0, 0, row, got.data(), &got_lse, &max_abs_score);
    EXPECT_NEAR(got[0], o, 1e-13) << to_string(problem) << " row " << row;
    if (std::isinf(lse))
      EXPECT_EQ(got_lse, lse) << to_string(problem) << " row " << row;
    else
      EXPECT_NEAR(got_lse, lse, 1e-14) << to_string(problem) << " row " << row;
  }

  Problem problem;
  std::vector<float> q{1, 2, 3}, k{1, 2, 4}, v{8, 16, 64}, sink{0.5f}, bias{0.25f, 0.5f, -1};
  std::vector<uint8_t> mask{1, 0, 1};
  double max_abs_score = 0;
};

// Weighted mean and log-sum-exp of three scores; hidden ones are -inf.
struct Expected {
  Expected(double a, double b, double c, double sink = -infinity) {
    const double weights[] = {std::exp(a), std::exp(b), std::exp(c)};
    const double sum = weights[0] + weights[1] + weights[2] + std::exp(sink);
    o = (8 * weights[0] + 16 * weights[1] + 64 * weights[2]) / sum;
    lse = std::log(sum);
  }
  double o, lse;
};

TEST(Reference, PlainAttention) {
  Scalars s("fwd b1 h1/1 q3 k3 d1 f32");
  for (int64_t row = 0; row < 3; ++row) {
    const double q = static_cast<double>(row + 1);
    const Expected expected(q, 2 * q, 4 * q);
    s.expect(row, expected.o, expected.lse);
    EXPECT_EQ(s.max_abs_score, 4 * q);
  }
}

TEST(Reference, CausalAndWindow) {
  Scalars causal("fwd b1 h1/1 q3 k3 d1 f32 causal-tl");
  causal.expect(0, 8, 1);
  const Expected two(2, 4, -infinity);
  causal.expect(1, two.o, two.lse);

  // Two rows, three keys: bottom-right sees one key more than top-left.
  Scalars bottom_right("fwd b1 h1/1 q2 k3 d1 f32 causal-br");
  const Expected first(1, 2, -infinity);
  bottom_right.expect(0, first.o, first.lse);
  Scalars top_left("fwd b1 h1/1 q2 k3 d1 f32 causal-tl");
  top_left.expect(0, 8, 1);

  Scalars window("fwd b1 h1/1 q3 k3 d1 f32 w0,1");
  const Expected next(-infinity, 4, 8);
  window.expect(1, next.o, next.lse);
  window.expect(2, 64, 12);

  // Three rows, one key, bottom-right: only the last row sees it.
  Scalars empty("fwd b1 h1/1 q3 k1 d1 f32 causal-br");
  empty.expect(0, 0, -infinity);
  empty.expect(1, 0, -infinity);
  empty.expect(2, 8, 3);
}

TEST(Reference, ScaleSoftcapBiasMaskInThisOrder) {
  Scalars s("fwd b1 h1/1 q3 k3 d1 f32 scale0.5 cap2 bias=111k mask=111k");
  const auto capped = [](double score) { return 2 * std::tanh(0.5 * score / 2); };
  const Expected expected(capped(1) + 0.25, -infinity, capped(4) - 1);
  s.expect(0, expected.o, expected.lse);
  EXPECT_EQ(s.max_abs_score, 2);  // before the cap, visible keys only
}

TEST(Reference, SinkJoinsTheDenominator) {
  Scalars s("fwd b1 h1/1 q3 k3 d1 f32 sink");
  const Expected expected(1, 2, 4, 0.5);
  s.expect(0, expected.o, expected.lse);
  s.problem.causal = Causal::bottom_right;
  s.problem.seq_k = 0;
  s.expect(0, 0, 0.5);
}

TEST(Reference, HiddenKeysAreNotRead) {
  Scalars s("fwd b1 h1/1 q3 k3 d1 f32 mask=111k");
  s.k[1] = s.v[1] = std::nanf("");
  const Expected expected(1, -infinity, 4);
  s.expect(0, expected.o, expected.lse);
  Scalars biased("fwd b1 h1/1 q3 k3 d1 f32 bias=111k");
  biased.bias = {0, -std::numeric_limits<float>::infinity(), 0};
  biased.v[1] = std::nanf("");
  biased.expect(0, expected.o, expected.lse);
}

TEST(Reference, HeadsStridesLengthsAndPacking) {
  // Two sequences end to end, two query heads on one KV head, rows 3 elements apart, value heads of 2.
  Problem p = parse_problem("fwd b2 h2/1 q2 k2 d1/2 f32");
  p.features |= ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_USED_K;
  p.total_q = p.total_k = 3;
  p.q = {0, 2, 1};
  p.k = {0, 3, 100};
  p.v = {0, 3, 100};
  const float q[] = {1, -1, 2, -2, 3, -3};
  const float k[] = {1, 0, 0, 5, 0, 0, 2};
  const float v[] = {10, 11, 0, 20, 21, 0, 30, 31};
  const int32_t cu_seqlens_q[] = {0, 1, 3}, cu_seqlens_k[] = {0, 1, 3};
  const int32_t used_q[] = {1, 1}, used_k[] = {1, 2};
  attune_forward_args args{};
  args.q = q;
  args.k = k;
  args.v = v;
  args.cu_seqlens_q = cu_seqlens_q;
  args.cu_seqlens_k = cu_seqlens_k;
  args.used_q = used_q;
  args.used_k = used_k;
  double o[2], lse = 0;
  reference_row(p, operands_of(args), 0, 1, 0, o, &lse, nullptr);
  EXPECT_EQ(o[0], 10);
  EXPECT_EQ(o[1], 11);
  EXPECT_EQ(lse, -1);
  reference_row(p, operands_of(args), 1, 1, 0, o, &lse, nullptr);
  const double first = std::exp(-10.0), second = std::exp(-4.0);
  EXPECT_NEAR(o[0], (20 * first + 30 * second) / (first + second), 1e-13);
  EXPECT_NEAR(o[1], (21 * first + 31 * second) / (first + second), 1e-13);
  EXPECT_NEAR(lse, std::log(first + second), 1e-13);
  reference_row(p, operands_of(args), 1, 0, 1, o, &lse, nullptr);  // past used_q
  EXPECT_EQ(o[0], 0);
  EXPECT_EQ(lse, -infinity);
}

}  // namespace
}  // namespace attune::cpu
