// Problems as values.
#include "core/problem.hpp"
#include "core/operands.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unordered_set>

#include "core/error.hpp"

namespace attune {
namespace {

bool same(const attune_strides& a, const attune_strides& b) {
  return a.batch == b.batch && a.row == b.row && a.head == b.head;
}

Problem small() {
  Problem problem;
  problem.features = ATTUNE_LSE | ATTUNE_BIAS | ATTUNE_MASK;
  problem.dtype = problem.bias_dtype = Dtype::f32;
  problem.batch = 2;
  problem.heads_q = 6;
  problem.heads_kv = 3;
  problem.seq_q = 5;
  problem.seq_k = 7;
  problem.dim_qk = 4;
  problem.dim_v = 8;
  problem.scale = default_scale(4);
  set_contiguous(problem, Layout::bshd);
  return problem;
}

TEST(Problem, ContiguousStrides) {
  Problem problem = small();  // q is 2 x 5 x 6 x 4, k 2 x 7 x 3 x 4, v 2 x 7 x 3 x 8
  EXPECT_TRUE(same(problem.q, {120, 24, 4}));
  EXPECT_TRUE(same(problem.k, {84, 12, 4}));
  EXPECT_TRUE(same(problem.v, {168, 24, 8}));
  EXPECT_TRUE(same(problem.o, {240, 48, 8}));
  EXPECT_TRUE(same(problem.lse, {30, 1, 5}));
  EXPECT_EQ(problem.bias.batch, 6 * 5 * 7);
  EXPECT_EQ(problem.bias.head, 5 * 7);
  EXPECT_EQ(problem.bias.query, 7);
  EXPECT_EQ(problem.bias.key, 1);

  set_contiguous(problem, Layout::bhsd, {.batch = false, .query = false}, {.head = false, .key = false});
  EXPECT_TRUE(same(problem.q, {120, 4, 20}));
  EXPECT_TRUE(same(problem.lse, {30, 1, 5}));
  EXPECT_EQ(problem.bias.batch, 0);
  EXPECT_EQ(problem.bias.head, 7);
  EXPECT_EQ(problem.bias.query, 0);
  EXPECT_EQ(problem.bias.key, 1);
  EXPECT_EQ(problem.mask.batch, 5);
  EXPECT_EQ(problem.mask.head, 0);
  EXPECT_EQ(problem.mask.query, 1);
  EXPECT_EQ(problem.mask.key, 0);

  problem.features = ATTUNE_PACKED | ATTUNE_LSE;
  problem.total_q = 9;
  problem.total_k = 11;
  set_contiguous(problem, Layout::bshd);
  EXPECT_TRUE(same(problem.q, {0, 24, 4}));
  EXPECT_TRUE(same(problem.lse, {0, 1, 9}));
  EXPECT_EQ(problem.bias.batch, 0) << "no bias, no strides";
  set_contiguous(problem, Layout::bhsd);
  EXPECT_TRUE(same(problem.k, {0, 4, 44}));
}

TEST(Problem, StridesOfEmptyTensorsAreNotBroadcast) {
  Problem problem = small();
  problem.seq_k = 0;
  set_contiguous(problem, Layout::bhsd);
  EXPECT_NE(problem.k.head, 0);
  EXPECT_NE(problem.bias.query, 0);
}

TEST(Problem, StridesThatDoNotFitAreRefused) {
  Problem problem = small();
  problem.seq_q = problem.batch = problem.heads_q = int64_t{1} << 30;
  EXPECT_THROW(set_contiguous(problem, Layout::bshd), Error);
}

TEST(Problem, ComparesAndHashesByValue) {
  const Problem a = small();
  Problem b = small();
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.hash(), b.hash());
  std::unordered_set<uint64_t> hashes{a.hash()};
  b.seq_k = 8;
  EXPECT_FALSE(a == b);
  hashes.insert(b.hash());
  b = a;
  b.softcap = 1;
  EXPECT_FALSE(a == b);
  hashes.insert(b.hash());
  b = a;
  b.device_index = 1;
  EXPECT_FALSE(a == b);
  hashes.insert(b.hash());
  EXPECT_EQ(hashes.size(), 4u);
}

TEST(Problem, DescriptorAndBack) {
  Problem problem = small();
  problem.features |= ATTUNE_SINK | ATTUNE_USED_K | ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SOFTCAP;
  problem.causal = Causal::top_left;
  problem.window_left = 3;
  problem.scale = -2;
  problem.softcap = 30;
  EXPECT_EQ(problem_from(desc_from(problem)), problem);
  EXPECT_EQ(problem_from(desc_from(small())), small());
}

// The lab fills Problems in by hand: values speak, the three bits follow.
TEST(Problem, ValuesSetTheirBitsInTheDescriptor) {
  Problem problem = small();
  problem.window_right = 2;
  problem.scale = 0;
  problem.softcap = 5;
  const attune_forward_desc desc = desc_from(problem);
  EXPECT_EQ(desc.features & (ATTUNE_WINDOW | ATTUNE_SCALE | ATTUNE_SOFTCAP),
            ATTUNE_WINDOW | ATTUNE_SCALE | ATTUNE_SOFTCAP);
  EXPECT_EQ(desc.window_left, -1);
  EXPECT_EQ(desc.window_right, 2);
}

// The operands of the problem that have elements.
std::string present(const Problem& problem) {
  std::string names;
  for (const OperandRow& row : operand_rows())
    if (has_operand(problem, row) && has_elements(problem, row)) names += fmt::format(" {}", row.name);
  return names;
}

TEST(Problem, WithoutRowsOrKeysTensorsHaveNoElements) {
  Problem problem = small();
  EXPECT_FALSE(problem.empty());
  EXPECT_EQ(present(problem), " q k v o lse bias mask");
  for (int64_t Problem::* extent : {&Problem::batch, &Problem::heads_q, &Problem::seq_q}) {
    problem = small();
    problem.*extent = 0;
    EXPECT_TRUE(problem.empty());
    EXPECT_TRUE(nothing_to_write(problem));
  }
  problem = small();
  problem.seq_k = 0;
  EXPECT_FALSE(problem.empty());
  EXPECT_EQ(present(problem), " q o lse");
  problem = small();
  problem.features |= ATTUNE_PACKED;
  EXPECT_TRUE(problem.empty()) << "total_q is 0";
  problem.total_q = 3;
  EXPECT_FALSE(problem.empty());
  EXPECT_EQ(present(problem), " q o lse cu_seqlens_q cu_seqlens_k") << "total_k is 0";
}

// Gradients of what is there are written where nothing reaches it, too.
TEST(Problem, ABackwardWithoutQueriesWritesItsKeys) {
  const Problem problem = parse_problem("bwd b2 h2/1 q0 k5 d8 f16 sink dsink bias=bhqk dbias");
  EXPECT_TRUE(problem.empty());
  EXPECT_FALSE(nothing_to_write(problem));
  EXPECT_EQ(present(problem), " k v sink dk dv dsink");
  EXPECT_EQ(present(parse_problem("bwd b2 h2/1 q3 k0 d8 f16")), " q o lse dout dq");
  EXPECT_TRUE(nothing_to_write(parse_problem("bwd b0 h2/1 q3 k3 d8 f16")));
}

TEST(Problem, Names) {
  EXPECT_EQ(name_of(Dtype::f16), "f16");
  EXPECT_EQ(name_of(Dtype::bf16), "bf16");
  EXPECT_EQ(name_of(Dtype::f32), "f32");
  EXPECT_EQ(name_of(Causal::none), "full");
  EXPECT_EQ(name_of(Causal::top_left), "causal-tl");
  EXPECT_EQ(name_of(Causal::bottom_right), "causal-br");
  EXPECT_EQ(default_scale(64), 0.125f);
}

}  // namespace
}  // namespace attune
