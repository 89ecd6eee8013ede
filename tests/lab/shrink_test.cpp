// Shrinking ends at the smallest case that still has what made it fail.
#include "lab/check/shrink.hpp"

#include <gtest/gtest.h>

namespace attune::lab {
namespace {

TEST(Shrink, SmallerProblemsParseAndAreSmaller) {
  const std::string problem =
      "fwd b4 h8/2 q512 k300 d64/32 f16 causal-br w5,-1 cap30 sink bias=1h1k mask=bhqk var used-k";
  const auto smaller = smaller_problems(problem);
  EXPECT_GT(smaller.size(), 15u);
  for (const std::string& text : smaller) {
    EXPECT_NO_THROW(parse_problem(text)) << text;
    EXPECT_LE(text.size(), problem.size()) << text;
  }
}

TEST(Shrink, FindsWhatMatters) {
  Case c;
  c.problem = "fwd b4 h8/2 q512 k300 d64 f16 causal-br cap30 sink bias=1h1k bhsd";
  c.input = InputKind::outlier_channel;
  c.storage = Storage::odd;
  int calls = 0;
  const Case smallest = shrink(c, [&](const Case& candidate) {
    ++calls;
    const Problem p = parse_problem(candidate.problem);
    return p.has(ATTUNE_SINK) && p.seq_k > 64 && p.group() == 4;
  });
  EXPECT_EQ(smallest.problem, "fwd b1 h4/1 q1 k65 d1 f16 sink");
  EXPECT_EQ(smallest.input, InputKind::normal);
  EXPECT_EQ(smallest.storage, Storage::dense);
  EXPECT_LE(calls, 200);
}

TEST(Shrink, GivesUpInTime) {
  Case c;
  c.problem = "fwd b4 h8/2 q512 k300 d64 f16";
  int calls = 0;
  const Case smallest = shrink(c, [&](const Case&) { return ++calls < 3; }, 10);
  EXPECT_LE(calls, 10);
  EXPECT_NE(smallest.problem, c.problem);
}

TEST(Shrink, ReproducerNamesEverything) {
  Case c;
  c.problem = "fwd b1 h1/1 q1 k65 d1 f16 sink";
  c.kernel = "cpu/portable";
  c.input = InputKind::rising_max;
  c.seed = 77;
  c.storage = Storage::odd;
  EXPECT_EQ(reproducer(c),
            "attune check 'fwd b1 h1/1 q1 k65 d1 f16 sink' --kernel cpu/portable --input rising-max --seed 77 "
            "--storage odd");
  c.oracle = Oracle::halves;
  EXPECT_EQ(
      reproducer(c),
      "attune check 'fwd b1 h1/1 q1 k65 d1 f16 sink' --kernel cpu/portable --oracle halves --seed 77 --storage odd");
}

}  // namespace
}  // namespace attune::lab
