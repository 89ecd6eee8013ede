// Problems as text: round trips of random problems, the examples of the manual, and words that are not understood.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "tests/support/paths.hpp"

namespace attune {
namespace {

using testing::HasSubstr;

class RandomProblems {
 public:
  explicit RandomProblems(uint64_t seed) : random_(seed) {}

  Problem next() {
    Problem p;
    p.features = pick({0u, ATTUNE_SINK}) | pick({0u, ATTUNE_BIAS}) | pick({0u, ATTUNE_MASK}) |
                 pick({0u, 0u, ATTUNE_PACKED}) | pick({0u, 0u, ATTUNE_USED_Q}) | pick({0u, 0u, ATTUNE_USED_K}) |
                 pick({ATTUNE_LSE, ATTUNE_LSE, 0u}) | pick({0u, ATTUNE_OVERLAP, ATTUNE_OVERLAP | ATTUNE_KV_READY});
    p.dtype = pick({Dtype::f16, Dtype::bf16, Dtype::f32});
    if (p.dtype == Dtype::f32) p.features |= pick({0u, ATTUNE_F32_HIGH});
    p.bias_dtype = p.has(ATTUNE_BIAS) ? pick({p.dtype, Dtype::f32}) : p.dtype;
    p.causal = pick({Causal::none, Causal::top_left, Causal::bottom_right});
    p.batch = in(0, 5);
    p.heads_kv = in(0, 4);
    p.heads_q = p.heads_kv * in(0, 4);
    p.seq_q = pick({in(0, 3), in(0, 5000), int64_t{1} << in(0, 20)});
    p.seq_k = pick({in(0, 3), in(0, 5000), int64_t{1} << in(0, 20)});
    p.dim_qk = in(1, 512);
    p.dim_v = pick({p.dim_qk, in(1, 512)});
    if (p.packed()) {
      p.total_q = pick({p.batch * p.seq_q, in(0, 9000)});
      p.total_k = pick({p.batch * p.seq_k, in(0, 9000)});
      p.seq_q = std::min(p.seq_q, p.total_q);
      p.seq_k = std::min(p.seq_k, p.total_k);
    }
    p.window_left = pick({unbounded, unbounded, in(0, 3000)});
    p.window_right = pick({unbounded, unbounded, in(0, 3000)});
    p.softcap = pick({0.0f, 30.0f, any_float(true)});
    p.scale = pick({default_scale(p.dim_qk), 0.0f, any_float(false)});
    if (p.window_left != unbounded || p.window_right != unbounded) p.features |= ATTUNE_WINDOW;
    if (p.softcap != 0) p.features |= ATTUNE_SOFTCAP;
    if (p.scale != default_scale(p.dim_qk)) p.features |= ATTUNE_SCALE;
    const auto shape = [this] { return ScoreShape{flip(), flip(), flip(), flip()}; };
    set_contiguous(p, pick({Layout::bshd, Layout::bhsd}), shape(), shape());
    return p;
  }

 private:
  int64_t in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool flip() { return in(0, 1) == 1; }
  float any_float(bool positive) {
    for (;;) {
      const auto value = std::bit_cast<float>(static_cast<uint32_t>(in(0, 0xffffffff)));
      if (std::isfinite(value) && (!positive || value > 0)) return value;
    }
  }
  template <typename T>
  T pick(std::initializer_list<T> choices) {
    return choices.begin()[in(0, static_cast<int64_t>(choices.size()) - 1)];
  }

  std::mt19937_64 random_;
};

TEST(ProblemText, RandomProblemsComeBackTheSame) {
  const uint64_t seed = 20240607;
  RandomProblems problems(seed);
  for (int i = 0; i < 20000; ++i) {
    const Problem problem = problems.next();
    const std::string text = to_string(problem);
    ASSERT_EQ(parse_problem(text), problem) << text << " (seed " << seed << ", case " << i << ")";
    ASSERT_EQ(to_string(parse_problem(text)), text);
    ASSERT_EQ(problem_from(desc_from(problem)), problem) << text;
  }
}

// In docs/problems.md a line `A -> B` in a code block says that A parses and prints as B; a lone line prints as itself.
TEST(ProblemText, TheExamplesOfTheManualHold) {
  std::ifstream manual(test::repo() + "/docs/problems.md");
  ASSERT_TRUE(manual) << "docs/problems.md is missing";
  int examples = 0;
  for (std::string line; std::getline(manual, line);) {
    const size_t begin = line.find("    fwd b");
    if (begin != 0 || line.find('#') != line.npos) continue;
    const size_t arrow = line.find(" -> ");
    const std::string text = line.substr(4, arrow == line.npos ? line.npos : arrow - 4);
    const std::string expected = arrow == line.npos ? text : line.substr(arrow + 4);
    EXPECT_EQ(to_string(parse_problem(text)), expected);
    ++examples;
  }
  EXPECT_GE(examples, 10);
}

TEST(ProblemText, HighIsForFloat32OnACpu) {
  EXPECT_TRUE(parse_problem("fwd b1 h1/1 q1 k1 d8 f32 high").has(ATTUNE_F32_HIGH));
  EXPECT_EQ(to_string(parse_problem("fwd b1 h1/1 q1 k1 d8 bf16 high")), "fwd b1 h1/1 q1 k1 d8 bf16");
  attune_forward_desc desc = desc_from(parse_problem("fwd b1 h1/1 q1 k1 d8 f32 high"));
  desc.device_kind = ATTUNE_CUDA;
  EXPECT_FALSE(problem_from(desc).has(ATTUNE_F32_HIGH));
}

TEST(ProblemText, ReadsWhatItSays) {
  const Problem p = parse_problem(
      "fwd b2 h8/2 q5 k7 d64/128 bf16 causal-tl w3,0 cap30 sink bias=1h1k:f32 mask=b11k var used-q used-k scale-0.3 "
      "bhsd overlap kvready");
  EXPECT_EQ(p.device_kind, DeviceKind::cpu);
  EXPECT_EQ(p.features, ATTUNE_LSE | ATTUNE_SINK | ATTUNE_BIAS | ATTUNE_MASK | ATTUNE_PACKED | ATTUNE_USED_Q |
                            ATTUNE_USED_K | ATTUNE_SCALE | ATTUNE_SOFTCAP | ATTUNE_WINDOW | ATTUNE_OVERLAP |
                            ATTUNE_KV_READY);
  EXPECT_EQ(p.batch, 2);
  EXPECT_EQ(p.heads_q, 8);
  EXPECT_EQ(p.heads_kv, 2);
  EXPECT_EQ(p.group(), 4);
  EXPECT_EQ(p.seq_q, 5);
  EXPECT_EQ(p.seq_k, 7);
  EXPECT_EQ(p.dim_qk, 64);
  EXPECT_EQ(p.dim_v, 128);
  EXPECT_EQ(p.dtype, Dtype::bf16);
  EXPECT_EQ(p.bias_dtype, Dtype::f32);
  EXPECT_EQ(p.causal, Causal::top_left);
  EXPECT_EQ(p.window_left, 3);
  EXPECT_EQ(p.window_right, 0);
  EXPECT_EQ(p.softcap, 30);
  EXPECT_EQ(p.scale, -0.3f);
  EXPECT_EQ(p.total_q, 10);
  EXPECT_EQ(p.total_k, 14);
  EXPECT_EQ(p.q.row, 64);
  EXPECT_EQ(p.q.head, 10 * 64);
  EXPECT_EQ(p.bias.batch, 0);
  EXPECT_EQ(p.bias.head, 7);
  EXPECT_EQ(p.bias.query, 0);
  EXPECT_EQ(p.bias.key, 1);
  EXPECT_EQ(p.mask.batch, 7);
}

TEST(ProblemText, WordsMayComeInAnyOrderAndAnyBlanks) {
  EXPECT_EQ(parse_problem("  fwd causal f16\td64 k512 q512 h8 b1 \n"),
            parse_problem("fwd b1 h8/8 q512 k512 d64 f16 causal-br"));
}

TEST(ProblemText, StridesThatAreNoLayoutPrintAsStrided) {
  Problem problem = parse_problem("fwd b2 h8/2 q5 k7 d64 f16");
  problem.v.row += 8;
  EXPECT_EQ(to_string(problem), "fwd b2 h8/2 q5 k7 d64 f16 strided");
  EXPECT_THROW(parse_problem(to_string(problem)), Error);
  // Strides that are never used do not make it strided.
  problem = parse_problem("fwd b1 h8/2 q5 k7 d64 f16");
  problem.q.batch = 77;
  EXPECT_EQ(to_string(problem), "fwd b1 h8/2 q5 k7 d64 f16");
}

TEST(ProblemText, BadTextIsNamed) {
  const auto refusal = [](std::string_view text) -> std::string {
    try {
      parse_problem(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
      return error.what();
    }
    return "";
  };
  const std::string shape = "fwd b1 h8/8 q512 k512 d64 f16 ";
  EXPECT_THAT(refusal(""), HasSubstr("must look like 'fwd b1"));
  EXPECT_THAT(refusal("dec b1 h8/8"), HasSubstr("begins with 'dec'; it must begin with bwd or fwd or merge"));
  EXPECT_THAT(refusal("fwd b1 h8/8 q512 k512 d64"), HasSubstr("lacks dtype"));
  EXPECT_THAT(refusal("fwd h8/8 q512 k512 d64 f16"), HasSubstr("lacks b"));
  EXPECT_THAT(refusal(shape + "casual"), HasSubstr("'casual' in problem"));
  EXPECT_THAT(refusal(shape + "q5"), HasSubstr("'q5' in problem"));
  EXPECT_THAT(refusal(shape + "bf16"), HasSubstr("'bf16' in problem"));
  EXPECT_THAT(refusal(shape + "causal-tl causal-br"), HasSubstr("second time"));
  EXPECT_THAT(refusal(shape + "w5"), HasSubstr("w#,#"));
  EXPECT_THAT(refusal(shape + "w5,"), HasSubstr("w#,#"));
  EXPECT_THAT(refusal(shape + "w-2,5"), HasSubstr("desc.window_left is -2"));
  EXPECT_THAT(refusal(shape + "kvready"), HasSubstr("ATTUNE_KV_READY (0x800) is allowed only together with"));
  EXPECT_THAT(refusal(shape + "overlap overlap"), HasSubstr("second time"));
  EXPECT_THAT(refusal(shape + "cap0"), HasSubstr("greater than 0"));
  EXPECT_THAT(refusal(shape + "cap-1"), HasSubstr("desc.softcap is -1"));
  EXPECT_THAT(refusal(shape + "capx"), HasSubstr("'capx' in problem"));
  EXPECT_THAT(refusal(shape + "scalenan"), HasSubstr("desc.scale is nan"));
  EXPECT_THAT(refusal(shape + "scale1e99"), HasSubstr("'scale1e99'"));
  EXPECT_THAT(refusal(shape + "bias=bhq"), HasSubstr("bias=bhqk"));
  EXPECT_THAT(refusal(shape + "bias=hbqk"), HasSubstr("bias=bhqk"));
  EXPECT_THAT(refusal(shape + "bias=bhqk:f16"), HasSubstr("bias=bhqk:f32"));
  EXPECT_THAT(refusal(shape + "mask=bhqk1"), HasSubstr("mask=bhqk"));
  EXPECT_THAT(refusal(shape + "var=5"), HasSubstr("var=#,#"));
  EXPECT_THAT(refusal("fwd b1 h8/3 q512 k512 d64 f16"), HasSubstr("desc.heads_kv is 3; it must divide heads_q (8)"));
  EXPECT_THAT(refusal("fwd b1 h8/ q512 k512 d64 f16"), HasSubstr("'h8/'"));
  EXPECT_THAT(refusal("fwd b1 h8/8 q512k k512 d64 f16"), HasSubstr("'q512k'"));
  EXPECT_THAT(refusal("fwd b-1 h8/8 q512 k512 d64 f16"), HasSubstr("desc.batch is -1"));
  EXPECT_THAT(refusal("fwd b1 h8/8 q99999999999999999999 k512 d64 f16"), HasSubstr("'q9999"));
  EXPECT_THAT(refusal("fwd b99999999 h99999999 q999999999 k512 d64 f16"), HasSubstr("fewer than 2^63 elements"));
  EXPECT_THAT(refusal("fwd b1 h9999999999 q9999999999 k512 d64 f16"), HasSubstr("64 bits"));
  EXPECT_THAT(refusal("fwd b99999 h8 q99999 k512 d64 f16 var"), HasSubstr("desc.total_q is 9999800001"));
}

}  // namespace
}  // namespace attune
