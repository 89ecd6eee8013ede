// What the contract allows must pass, and what is switched off must not matter. The wrong calls are in
// tests/api/wrong_calls_test.cpp, through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

attune_forward_desc plain() { return desc_from(parse_problem("fwd b2 h6/3 q5 k7 d4/8 f16 nolse")); }

std::string refusal(const attune_forward_desc& desc) {
  try {
    problem_from(desc);
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

TEST(Validate, FieldsOfFeaturesThatAreOffAreNotRead) {
  attune_forward_desc desc = plain();
  const Problem expected = problem_from(desc);
  desc.scale = NAN;
  desc.softcap = -1;
  desc.window_left = -77;
  desc.window_right = -78;
  desc.bias_dtype = 55;
  desc.lse = {std::numeric_limits<int64_t>::min(), 0, 0};
  desc.bias = {1, 2, 3, std::numeric_limits<int64_t>::max()};
  desc.mask = desc.bias;
  EXPECT_EQ(problem_from(desc), expected);
}

TEST(Validate, AnyFiniteScaleIsLegal) {
  attune_forward_desc desc = plain();
  desc.features |= ATTUNE_SCALE;
  for (const float scale : {0.0f, -0.0f, -3.0f, 1e-45f, std::numeric_limits<float>::max()}) {
    desc.scale = scale;
    const Problem problem = problem_from(desc);
    EXPECT_EQ(problem.scale, scale);
    EXPECT_TRUE(problem.has(ATTUNE_SCALE));
  }
  desc.scale = 0.5f;  // 1/sqrt(4): as if nothing had been said
  EXPECT_EQ(problem_from(desc), problem_from(plain()));
}

TEST(Validate, WindowsWiderThanAnySequenceAreUnbounded) {
  attune_forward_desc desc = plain();
  desc.features |= ATTUNE_WINDOW;
  desc.window_left = std::numeric_limits<int64_t>::max();
  desc.window_right = 3;
  EXPECT_EQ(problem_from(desc).window_left, unbounded);
  EXPECT_EQ(problem_from(desc).window_right, 3);
  desc.window_right = -1;
  EXPECT_EQ(problem_from(desc), problem_from(plain()));
}

TEST(Validate, InputsMayBroadcastReverseAndOverlap) {
  attune_forward_desc desc = plain();
  desc.q = {0, 0, 0};
  desc.k = {-100, -4, -1};
  desc.v = {1, 1, 1};
  EXPECT_EQ(refusal(desc), "");
}

TEST(Validate, OutputsMayBePaddedReversedAndInAnyOrderButNotOverlap) {
  attune_forward_desc desc = plain();  // o is 2 x 5 rows x 6 heads x 8
  desc.o = {1000, -64, 9};
  EXPECT_EQ(refusal(desc), "");
  desc.o = {8, 16, 80};
  EXPECT_EQ(refusal(desc), "");
  desc.o = {8, 15, 80};
  EXPECT_THAT(refusal(desc), HasSubstr("desc.o.row is 15; it must be at least 16"));
  desc.o = {8, 16, 79};
  EXPECT_THAT(refusal(desc), HasSubstr("desc.o.head is 79; it must be at least 80"));
  desc.o = {0, 48, 8};
  EXPECT_THAT(refusal(desc), HasSubstr("desc.o.batch is 0; it must be at least 8"));
  desc.batch = 1;  // and a stride that is never used does not matter
  EXPECT_EQ(refusal(desc), "");
  desc.batch = 0;
  desc.o = {0, 0, 0};
  EXPECT_EQ(refusal(desc), "");
}

TEST(Validate, OffsetsBeyond32BitsAreLegalAndBeyond63AreNot) {
  attune_forward_desc desc = plain();
  desc.seq_k = int64_t{1} << 40;
  desc.k.row = desc.v.row = 8;
  EXPECT_EQ(refusal(desc), "");
  desc.k.row = int64_t{1} << 23;
  EXPECT_THAT(refusal(desc), HasSubstr("desc.k.row is 8388608"));
  desc = plain();
  desc.q.batch = std::numeric_limits<int64_t>::min();
  EXPECT_THAT(refusal(desc), HasSubstr("desc.q.batch is -9223372036854775808"));
}

TEST(Validate, AStrideInBytesIsANumberEvenWhereNothingIsSteppedOver) {
  attune_forward_desc desc = plain();
  desc.seq_k = 0;
  desc.k.row = int64_t{1} << 61;  // of 2-byte elements: 2^62 bytes
  desc.v.row = -desc.k.row;
  EXPECT_EQ(refusal(desc), "");
  desc.k.row *= 2;
  EXPECT_THAT(refusal(desc), HasSubstr("desc.k.row is 4611686018427387904; with an extent of 0"));
}

TEST(Validate, PackedLengthsAreUpperBounds) {
  attune_forward_desc desc = desc_from(parse_problem("fwd b3 h2/2 q8 k8 d4 f32 var=10,12 bhsd"));
  desc.q.batch = desc.lse.batch = 12345;  // not read
  desc.seq_q = max_extent;
  desc.seq_k = 9;
  const Problem problem = problem_from(desc);
  EXPECT_EQ(problem.q.batch, 0);
  EXPECT_EQ(problem.lse.batch, 0);
  EXPECT_EQ(problem.seq_q, 10) << "no sequence is longer than all together";
  EXPECT_EQ(problem.seq_k, 9);
}

TEST(Validate, HeadsMayBeZeroTogether) {
  attune_forward_desc desc = plain();
  desc.heads_q = 0;
  EXPECT_EQ(refusal(desc), "");
  desc.heads_kv = 0;
  EXPECT_EQ(refusal(desc), "");
  desc.heads_q = 2;
  EXPECT_EQ(refusal(desc), "desc.heads_kv is 0; it must divide heads_q (2)");
}

// Every problem_from that succeeds gives a Problem that prints, whatever its extents.
TEST(Validate, WhatIsValidCanBePrinted) {
  for (int64_t attune_forward_desc::* extent : {&attune_forward_desc::batch, &attune_forward_desc::heads_q,
                                                &attune_forward_desc::seq_q, &attune_forward_desc::seq_k})
    for (int64_t attune_forward_desc::* zero : {&attune_forward_desc::batch, &attune_forward_desc::seq_q})
      for (int64_t value = 1; value <= max_extent; value *= 2) {
        attune_forward_desc desc = plain();
        desc.*zero = 0;
        desc.*extent = value * (extent == &attune_forward_desc::heads_q ? 3 : 1);
        desc.q = desc.k = desc.v = {0, 0, 0};
        if (!refusal(desc).empty()) continue;
        EXPECT_NO_THROW(to_string(problem_from(desc))) << value;
      }
}

}  // namespace
}  // namespace attune
