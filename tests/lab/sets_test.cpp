// Named problem sets, sets from files, and the reduction of problems that are too large.
#include "lab/sets.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "core/error.hpp"
#include "core/operation.hpp"
#include "core/problem.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

bool has(const ProblemSet& set, const std::string& problem) {
  return std::ranges::find(set.problems, to_string(parse_problem(problem))) != set.problems.end();
}

TEST(Sets, HaveTheProblemsTheyAreNamedFor) {
  const std::vector<std::pair<std::string, size_t>> sizes{
      {"reports7", 14},  {"reports5", 20}, {"mission", 4},          {"h100", 4},     {"llama7b", 2}, {"grid", 72},
      {"small", 32},     {"latency", 16},  {"latency-overlap", 16}, {"prefill", 39}, {"cpu", 15},    {"grid-bwd", 36},
      {"models-bwd", 35}};
  for (const auto& [name, size] : sizes) EXPECT_EQ(find_set(name).problems.size(), size) << name;
  EXPECT_TRUE(has(find_set("reports7"), "fwd b2 h8/8 q1024 k1024 d64 f16 causal-br"));
  EXPECT_TRUE(has(find_set("reports5"), "fwd b4 h16/16 q256 k256 d64 bf16"));
  EXPECT_TRUE(has(find_set("mission"), "fwd b1 h8/8 q512 k512 d64 f16 causal-br"));
  EXPECT_TRUE(has(find_set("h100"), "fwd b16 h16/16 q2048 k2048 d64 f16"));
  EXPECT_TRUE(has(find_set("llama7b"), "fwd b1 h32/32 q2048 k2048 d128 bf16 causal-br"));
  EXPECT_TRUE(has(find_set("grid"), "fwd b32 h8/8 q512 k512 d256 bf16"));
  EXPECT_TRUE(has(find_set("grid"), "fwd b1 h32/32 q16384 k16384 d64 bf16 causal-br"));
  EXPECT_TRUE(has(find_set("small"), "fwd b1 h32/32 q512 k512 d128 f16"));
  EXPECT_TRUE(has(find_set("latency"), "fwd b1 h32/32 q512 k512 d128 bf16"));
  EXPECT_TRUE(has(find_set("latency-overlap"), "fwd b1 h32/32 q512 k512 d128 bf16 overlap kvready"));
  EXPECT_TRUE(has(find_set("latency"), "fwd b4 h16/16 q512 k512 d64 f16 causal-br"));
  EXPECT_TRUE(has(find_set("prefill"), "fwd b16 h16/16 q2048 k2048 d64 f16"));
  EXPECT_TRUE(has(find_set("prefill"), "fwd b1 h8/8 q16384 k16384 d256 bf16"));
}

TEST(Sets, GridKeepsItsProducts) {
  for (const std::string& text : find_set("grid").problems) {
    const Problem p = parse_problem(text);
    EXPECT_EQ(p.batch * p.seq_q, 16384) << text;
    EXPECT_EQ(p.heads_q * p.dim_qk, 2048) << text;
  }
}

TEST(Sets, OfGradientsAreThoseOfForwardPasses) {
  for (const std::string& text : find_set("grid-bwd").problems)
    EXPECT_TRUE(has(find_set("grid"), "fwd" + text.substr(3))) << text;
  for (const char* name : {"backward", "grid-bwd", "models-bwd"})
    for (const std::string& text : find_set(name).problems)
      EXPECT_EQ(parse_problem(text).operation, find_operation("bwd")) << text;
  EXPECT_TRUE(has(find_set("models-bwd"), "bwd b1 h32/8 q4096 k4096 d128 bf16 causal-br"));
  EXPECT_TRUE(has(find_set("models-bwd"), "bwd b16 h16/16 q512 k512 d64 bf16 bias=1hqk dbias"));
}

TEST(Sets, AreCanonicalAndWithoutRepeats) {
  for (const ProblemSet& set : builtin_sets()) {
    EXPECT_FALSE(set.about.empty());
    std::set<std::string> seen;
    for (const std::string& problem : set.problems) {
      EXPECT_EQ(to_string(parse_problem(problem)), problem);
      EXPECT_TRUE(seen.insert(problem).second) << set.name << ": " << problem;
    }
  }
}

TEST(Sets, FeaturesHaveEveryFeature) {
  uint32_t features = 0;
  std::set<Causal> causal;
  std::set<Dtype> dtypes;
  bool gqa = false, different_dims = false, no_lse = false;
  for (const std::string& text : find_set("features").problems) {
    const Problem p = parse_problem(text);
    features |= p.features | (p.softcap != 0 ? ATTUNE_SOFTCAP : 0u);
    causal.insert(p.causal);
    dtypes.insert(p.dtype);
    gqa |= p.group() > 1;
    different_dims |= p.dim_qk != p.dim_v;
    no_lse |= !p.has(ATTUNE_LSE);
  }
  constexpr uint32_t all = ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SOFTCAP | ATTUNE_SINK | ATTUNE_BIAS | ATTUNE_MASK |
                           ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_USED_K | ATTUNE_LSE | ATTUNE_OVERLAP |
                           ATTUNE_KV_READY;
  EXPECT_EQ(features & all, all);
  EXPECT_EQ(causal.size(), 3u);
  EXPECT_EQ(dtypes.size(), 3u);
  EXPECT_TRUE(gqa && different_dims && no_lse);
}

TEST(Sets, ComeFromFiles) {
  const test::TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::string path = (directory.path() / name).string();
    std::ofstream(path) << text;
    return path;
  };
  const ProblemSet set = find_set(write("mine.toml",
                                        "about = \"two\"\nproblems = [\n  \"fwd b1 h2 q8 k8 d16 f16\",\n"
                                        "  \"fwd b1 h2 q8 k8 d16 bf16 causal\",\n]\n"));
  EXPECT_EQ(set.name, "mine");
  EXPECT_EQ(set.about, "two");
  EXPECT_EQ(set.problems[1], "fwd b1 h2/2 q8 k8 d16 bf16 causal-br");

  const auto complaint = [](const std::string& what) {
    try {
      find_set(what);
      return std::string("none");
    } catch (const Error& error) {
      EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
      return std::string(error.what());
    }
  };
  EXPECT_NE(complaint(write("bad.toml", "problems = [\n\"fwd b1\",\n]")).find("line 2"), std::string::npos);
  EXPECT_NE(complaint(write("number.toml", "problems = [3]")).find("string"), std::string::npos);
  EXPECT_NE(complaint(write("empty.toml", "")).find("no problems"), std::string::npos);
  EXPECT_NE(complaint(write("broken.toml", "problems = [")).find("line 1"), std::string::npos);
  EXPECT_NE(complaint("absent.toml").find("absent.toml"), std::string::npos);
  EXPECT_NE(complaint("gird").find("grid"), std::string::npos) << "the sets there are";
}

TEST(Sets, ReducedKeepsTheKeys) {
  const std::string large = "fwd b16 h16/16 q2048 k2048 d64 f16 causal-br";
  const Problem p = parse_problem(reduced(large, 0x1p31));
  EXPECT_LE(useful_flops(p), 0x1p31);
  EXPECT_GT(useful_flops(p), 0x1p29);
  EXPECT_EQ(p.seq_k, 2048);
  EXPECT_EQ(p.causal, Causal::bottom_right);
  EXPECT_EQ(reduced(large, 1e15), large);
  const Problem decoding = parse_problem(reduced("fwd b16 h8/8 q1 k4096 d128 bf16", 0x1p32));
  EXPECT_LT(decoding.batch * decoding.heads_kv * decoding.seq_k * 256, int64_t{1} << 24) << "few operations, much data";
  EXPECT_EQ(decoding.seq_k, 4096);
  const Problem one_head = parse_problem(reduced("fwd b1 h6/2 q16384 k16384 d256 bf16 bias=1h1k bhsd", 0x1p28));
  EXPECT_LE(useful_flops(one_head), 0x1p28);
  EXPECT_EQ(one_head.seq_k, 16384);
  EXPECT_EQ(one_head.heads_q % one_head.heads_kv, 0);
  EXPECT_TRUE(one_head.has(ATTUNE_BIAS));
}

}  // namespace
}  // namespace attune::lab
