// Lengths of what is timed: batches as they are served, the same here and in a host in another language.
#include "lab/check/lengths.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "lab/check/inputs.hpp"
#include "lab/sets.hpp"
#include "tests/lab/lab_fixture.hpp"

namespace attune::lab {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::IsEmpty;
using testing::Le;
using testing::SizeIs;

Lengths lengths_of(const std::string& problem) { return timed_lengths(parse_problem(problem)); }

std::vector<int32_t> differences(const std::vector<int32_t>& offsets) {
  std::vector<int32_t> lengths(offsets.size());
  std::adjacent_difference(offsets.begin(), offsets.end(), lengths.begin());
  return {lengths.begin() + 1, lengths.end()};
}

TEST(TimedLengths, AreNeverShorterThanASixteenthOfTheLongest) {
  const Lengths lengths = lengths_of("fwd b32 h32/8 q1 k4096 d128 bf16 used-k");
  EXPECT_THAT(lengths.used_k, AllOf(SizeIs(32), Each(AllOf(Ge(256), Le(4096))), Contains(4096)));
  EXPECT_THAT(lengths.used_q, IsEmpty());
  EXPECT_THAT(lengths.cu_seqlens_k, IsEmpty());
  EXPECT_THAT(lengths.padding, IsEmpty());
  EXPECT_THAT(lengths_of("fwd b3 h1 q4 k4 d8 f16 used-q").used_q, AllOf(SizeIs(3), Each(AllOf(Ge(1), Le(4)))));
}

TEST(TimedLengths, HaveTheTotalThatIsGiven) {
  for (const char* problem : {"fwd b16 h32/8 q2048 k2048 d128 bf16 causal-br var=19386,19386",
                              "fwd b64 h32/8 q1024 k1024 d128 bf16 causal-br var=16000,16000"}) {
    const Problem asked = parse_problem(problem);
    const Lengths lengths = timed_lengths(asked);
    EXPECT_EQ(lengths.cu_seqlens_q, lengths.cu_seqlens_k) << "a sequence attends to itself";
    EXPECT_EQ(lengths.cu_seqlens_q.back(), asked.total_q);
    EXPECT_THAT(differences(lengths.cu_seqlens_q),
                AllOf(SizeIs(asked.batch), Each(AllOf(Ge(1), Le(static_cast<int32_t>(asked.seq_q))))));
  }
  const Lengths across = lengths_of("fwd b4 h2 q64 k96 d8 f16 var=100,200");
  EXPECT_EQ(across.cu_seqlens_q.back(), 100);
  EXPECT_EQ(across.cu_seqlens_k.back(), 200);
}

TEST(TimedLengths, LeaveRowsOverWhereNoTotalIsGiven) {
  const Lengths lengths = lengths_of("fwd b8 h2 q512 k512 d8 f16 var used-k");
  EXPECT_LT(lengths.cu_seqlens_q.back(), 8 * 512);
  const std::vector<int32_t> keys = differences(lengths.cu_seqlens_k);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_LE(lengths.used_k[i], keys[i]);
}

TEST(TimedLengths, PadWhereAMaskSaysTheSameForAllHeadsAndRows) {
  EXPECT_THAT(lengths_of("fwd b8 h32/8 q2048 k2048 d128 bf16 causal-br mask=b11k").padding,
              AllOf(SizeIs(8), Each(AllOf(Ge(128), Le(2048))), Contains(2048)));
  EXPECT_THAT(lengths_of("fwd b8 h2 q32 k32 d8 bf16 mask=111k").padding, SizeIs(1));
  for (const char* mask : {"b1qk", "1h1k", "bhqk", "b111"})
    EXPECT_EQ(lengths_of(std::string("fwd b8 h2 q32 k32 d8 bf16 mask=") + mask), Lengths{}) << mask;
}

TEST(TimedLengths, OfNothingAndOfOne) {
  EXPECT_EQ(lengths_of("fwd b8 h2 q32 k32 d8 bf16"), Lengths{});
  EXPECT_TRUE(to_json(Lengths{}).is_null());
  EXPECT_THAT(lengths_of("fwd b2 h2 q1 k1 d8 bf16 used-k").used_k, ElementsAre(1, 1));
  EXPECT_THAT(lengths_of("fwd b2 h2 q1 k0 d8 bf16 used-k").used_k, ElementsAre(0, 0));
  EXPECT_THAT(lengths_of("fwd b0 h2 q1 k4 d8 bf16 var").cu_seqlens_q, ElementsAre(0));
}

TEST(TimedLengths, AsJson) {
  const Lengths lengths = lengths_of("fwd b2 h2 q4 k4 d8 f16 var=4,4 used-k");
  const nlohmann::json json = to_json(lengths);
  EXPECT_EQ(json.size(), 3u);
  EXPECT_EQ(json.at("cu_seqlens_q"), lengths.cu_seqlens_q);
  EXPECT_EQ(json.at("cu_seqlens_k"), lengths.cu_seqlens_k);
  EXPECT_EQ(json.at("used_k"), lengths.used_k);
}

class TimedInputs : public Lab {};

TEST_F(TimedInputs, HaveThoseLengthsForEverySeed) {
  const std::string problem = "fwd b4 h2 q8 k64 d8 f16 used-k";
  const Lengths lengths = lengths_of(problem);
  for (const uint64_t seed : {1, 2}) {
    const Tensors t = inputs(problem, InputKind::timed, seed);
    for (int64_t b = 0; b < 4; ++b) EXPECT_EQ(t.sequence(b).seq_k, lengths.used_k[static_cast<size_t>(b)]);
  }
}

TEST_F(TimedInputs, ArePaddedOnTheLeftOfCausalProblems) {
  for (const bool causal : {false, true}) {
    const std::string problem = std::string("fwd b3 h2 q16 k16 d8 f16 mask=b11k") + (causal ? " causal-br" : "");
    const Lengths lengths = lengths_of(problem);
    const Tensors t = inputs(problem, InputKind::timed);
    for (int64_t b = 0; b < 3; ++b)
      for (int64_t key = 0; key < 16; ++key) {
        const int32_t length = lengths.padding[static_cast<size_t>(b)];
        const bool shown = t[Operand::mask].as<uint8_t>()[b * 16 + key] != 0;
        EXPECT_EQ(shown, causal ? key >= 16 - length : key < length) << problem << " " << b << " " << key;
      }
  }
}

TEST_F(TimedInputs, KeepTheRandomQuarterOfOtherMasks) {
  const std::string problem = "fwd b2 h2 q64 k64 d8 f16 mask=b1qk";
  const Tensors timed = inputs(problem, InputKind::timed), checked = inputs(problem, InputKind::normal);
  int64_t hidden = 0;
  for (int64_t i = 0; i < 2 * 64 * 64; ++i) {
    EXPECT_EQ(timed[Operand::mask].as<uint8_t>()[i], checked[Operand::mask].as<uint8_t>()[i]);
    hidden += timed[Operand::mask].as<uint8_t>()[i] == 0 ? 1 : 0;
  }
  EXPECT_GT(hidden, 2 * 64 * 64 / 5);
  EXPECT_LT(hidden, 2 * 64 * 64 / 2);
}

// In checks a mask over keys alone hides any of them.
TEST_F(TimedInputs, AreNoInputsOfChecks) {
  for (const InputKind kind : all_input_kinds) EXPECT_NE(kind, InputKind::timed);
  const Tensors checked = inputs("fwd b1 h2 q64 k64 d8 f16 mask=b11k");
  int64_t changes = 0;
  for (int64_t i = 1; i < 64; ++i)
    changes += (checked[Operand::mask].as<uint8_t>()[i] == 0) != (checked[Operand::mask].as<uint8_t>()[i - 1] == 0);
  EXPECT_GT(changes, 4);
}

}  // namespace
}  // namespace attune::lab
