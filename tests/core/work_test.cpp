// Closed forms against counting one by one, and against figures known from elsewhere.
#include <gtest/gtest.h>

#include "core/problem.hpp"
#include "core/visibility.hpp"

namespace attune {
namespace {

TEST(Work, VisibleScoresEqualACountOnEverySmallShape) {
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
    for (int64_t left = -1; left < 7; ++left)
      for (int64_t right = -1; right < 7; ++right)
        for (int64_t seq_q = 0; seq_q < 9; ++seq_q)
          for (int64_t seq_k = 0; seq_k < 9; ++seq_k) {
            Problem problem;
            problem.causal = causal;
            problem.window_left = left;
            problem.window_right = right;
            problem.batch = 3;
            problem.heads_q = 2;
            problem.seq_q = seq_q;
            problem.seq_k = seq_k;
            int64_t count = 0;
            for (int64_t row = 0; row < seq_q; ++row) {
              const KeyRange range = visible_keys(problem, row, seq_q, seq_k);
              count += std::max<int64_t>(range.end - range.begin, 0);
            }
            ASSERT_EQ(visible_scores(problem, seq_q, seq_k), static_cast<double>(count))
                << seq_q << "x" << seq_k << ' ' << name_of(causal) << " w" << left << "," << right;
            ASSERT_EQ(visible_scores(problem), static_cast<double>(6 * count));
          }
}

TEST(Work, FlopsOfKnownShapes) {
  // 4 B H S^2 D, the figure everybody quotes.
  EXPECT_EQ(useful_flops(parse_problem("fwd b16 h16/16 q2048 k2048 d64 f16")), 4.0 * 16 * 16 * 2048 * 2048 * 64);
  // Causal: S (S+1) / 2 scores, not S^2 / 2.
  EXPECT_EQ(useful_flops(parse_problem("fwd b1 h32/8 q2048 k2048 d128 bf16 causal-br")),
            4.0 * 32 * (2048.0 * 2049 / 2) * 128);
  EXPECT_EQ(useful_flops(parse_problem("fwd b2 h4/4 q1 k100 d192/128 f16 causal-br")), 2.0 * 2 * 4 * 100 * (192 + 128));
  EXPECT_EQ(useful_flops(parse_problem("fwd b2 h4/4 q1 k100 d192/128 f16 causal-tl")), 2.0 * 2 * 4 * 1 * (192 + 128));
}

TEST(Work, LengthsBeyond32BitsDoNotOverflow) {
  Problem problem;
  problem.causal = Causal::bottom_right;
  const int64_t seq = max_extent;
  EXPECT_EQ(visible_scores(problem, seq, seq), 0x1p95 + 0x1p47);
  problem.window_left = 0;
  EXPECT_EQ(visible_scores(problem, seq, seq), 0x1p48);
}

TEST(Work, CompulsoryBytes) {
  const double q = 2.0 * 8 * 512 * 64 * 2, kv = 2.0 * 2 * 300 * (64 + 32) * 2, o = 2.0 * 8 * 512 * 32 * 2;
  const double lse = 2.0 * 8 * 512 * 4;
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b2 h8/2 q512 k300 d64/32 f16 nolse")), q + kv + o);
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b2 h8/2 q512 k300 d64/32 f16")), q + kv + o + lse);
  // A broadcast dimension is read once.
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b2 h8/2 q512 k300 d64/32 f16 bias=1h1k:f32 mask=b11k sink")),
            q + kv + o + lse + 8.0 * 300 * 4 + 2.0 * 300 + 8.0 * 4);
  // Keys that no row sees need not be read: top-left, row i sees keys 0..i.
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b1 h1 q10 k1000 d16 f32 causal-tl nolse")),
            (10.0 + 10.0 + 10.0 + 10.0) * 16 * 4);
  // Bottom-right with a window of 5 keys to the left: keys 985 .. 999.
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b1 h1 q10 k1000 d16 f32 causal-br w5,0 nolse")),
            (10.0 + 15.0 + 15.0 + 10.0) * 16 * 4);
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b0 h1 q10 k1000 d16 f32")), 0);
  EXPECT_EQ(compulsory_bytes(parse_problem("fwd b1 h1 q10 k0 d16 f32")), (10.0 + 10.0) * 16 * 4 + 10.0 * 4);
}

}  // namespace
}  // namespace attune
