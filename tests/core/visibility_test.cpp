// Which keys a row sees, against the sentence of the header taken literally; and lengths as data.
#include "core/visibility.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace attune {
namespace {

bool sees(const Problem& problem, int64_t row, int64_t key, int64_t seq_q, int64_t seq_k) {
  const int64_t diagonal = problem.causal == Causal::top_left ? row : row + seq_k - seq_q;
  if (problem.causal != Causal::none && key > diagonal) return false;
  if (problem.window_left != unbounded && key < diagonal - problem.window_left) return false;
  if (problem.window_right != unbounded && key > diagonal + problem.window_right) return false;
  return true;
}

TEST(Visibility, EveryMaskOnEverySmallShape) {
  for (const Causal causal : {Causal::none, Causal::top_left, Causal::bottom_right})
    for (int64_t left = -1; left < 6; ++left)
      for (int64_t right = -1; right < 6; ++right)
        for (int64_t seq_q = 0; seq_q < 8; ++seq_q)
          for (int64_t seq_k = 0; seq_k < 8; ++seq_k)
            for (int64_t row = 0; row < seq_q; ++row) {
              Problem problem;
              problem.causal = causal;
              problem.window_left = left;
              problem.window_right = right;
              const KeyRange range = visible_keys(problem, row, seq_q, seq_k);
              ASSERT_GE(range.begin, 0);
              ASSERT_LE(range.end, seq_k);
              for (int64_t key = 0; key < seq_k; ++key)
                ASSERT_EQ(key >= range.begin && key < range.end, sees(problem, row, key, seq_q, seq_k))
                    << "row " << row << " key " << key << " of " << seq_q << "x" << seq_k << ' ' << name_of(causal)
                    << " w" << left << "," << right;
            }
}

struct Lengths {
  std::vector<int32_t> cu_q, cu_k, used_q, used_k;
  attune_forward_args args() const {
    attune_forward_args a{};
    a.cu_seqlens_q = cu_q.data();
    a.cu_seqlens_k = cu_k.data();
    a.used_q = used_q.data();
    a.used_k = used_k.data();
    return a;
  }
};

TEST(Visibility, SequencesOfADenseProblem) {
  Problem problem;
  problem.batch = 2;
  problem.seq_q = 5;
  problem.seq_k = 7;
  const Sequence whole = sequence_of(problem, {}, 1);
  EXPECT_EQ(whole.first_row_q, 0);
  EXPECT_EQ(whole.first_row_k, 0);
  EXPECT_EQ(whole.seq_q, 5);
  EXPECT_EQ(whole.stored_q, 5);
  EXPECT_EQ(whole.seq_k, 7);

  problem.features = ATTUNE_USED_Q | ATTUNE_USED_K;
  const Lengths lengths{{}, {}, {3, 99}, {-4, 6}};
  const Sequence first = sequence_of(problem, operands_of(lengths.args()), 0),
                 second = sequence_of(problem, operands_of(lengths.args()), 1);
  EXPECT_EQ(first.seq_q, 3);
  EXPECT_EQ(first.stored_q, 5);
  EXPECT_EQ(first.seq_k, 0);
  EXPECT_EQ(second.seq_q, 5);
  EXPECT_EQ(second.seq_k, 6);
}

TEST(Visibility, SequencesOfAPackedProblem) {
  Problem problem;
  problem.features = ATTUNE_PACKED | ATTUNE_USED_Q;
  problem.batch = 3;
  problem.seq_q = 4;
  problem.seq_k = 8;
  problem.total_q = 9;
  problem.total_k = 12;
  const Lengths lengths{{0, 4, 4, 9}, {0, 8, 9, 12}, {4, 1, 2}, {}};
  const Sequence second = sequence_of(problem, operands_of(lengths.args()), 1),
                 third = sequence_of(problem, operands_of(lengths.args()), 2);
  EXPECT_EQ(second.stored_q, 0);
  EXPECT_EQ(second.seq_q, 0);
  EXPECT_EQ(second.first_row_k, 8);
  EXPECT_EQ(second.seq_k, 1);
  EXPECT_EQ(third.first_row_q, 4);
  EXPECT_EQ(third.stored_q, 4) << "5 rows lie there, but seq_q promised at most 4";
  EXPECT_EQ(third.seq_q, 2);
  EXPECT_EQ(third.seq_k, 3);
}

TEST(Visibility, WildLengthsStayInsideTheTensors) {
  constexpr int32_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  const std::vector<int32_t> wild{low, -1, 0, 3, 5, 6, high};
  Problem problem;
  problem.features = ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_USED_K;
  problem.batch = 1;
  problem.seq_q = 4;
  problem.seq_k = 3;
  problem.total_q = 5;
  problem.total_k = 6;
  for (const int32_t begin : wild)
    for (const int32_t end : wild)
      for (const int32_t used : wild) {
        const Lengths lengths{{begin, end}, {end, begin}, {used}, {used}};
        const Sequence s = sequence_of(problem, operands_of(lengths.args()), 0);
        ASSERT_GE(s.first_row_q, 0);
        ASSERT_LE(s.first_row_q + s.stored_q, problem.total_q);
        ASSERT_LE(s.stored_q, problem.seq_q);
        ASSERT_GE(s.seq_q, 0);
        ASSERT_LE(s.seq_q, s.stored_q);
        ASSERT_GE(s.first_row_k, 0);
        ASSERT_GE(s.seq_k, 0);
        ASSERT_LE(s.first_row_k + s.seq_k, problem.total_k);
        ASSERT_LE(s.seq_k, problem.seq_k);
      }
}

}  // namespace
}  // namespace attune
