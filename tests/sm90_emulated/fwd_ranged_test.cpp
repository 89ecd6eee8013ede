// sm90/fwd_ranged on the emulated machine, through the lab's gate.
#include <gtest/gtest.h>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

constexpr const char* kernel = "sm90/fwd_ranged";

// With the configuration that has so many warpgroups and keys per block.
void expect_right(const char* problem, const char* shape) {
  std::vector<Options> runs = every_configuration(kernel, problem, {0, 1, 4});
  std::erase_if(runs, [&](const Options& run) { return run.config.find(shape) == std::string::npos; });
  ASSERT_EQ(runs.size(), 3u) << problem << ": configurations with " << shape;
  EXPECT_EQ(verdict(kernel, problem, runs), "");
}

constexpr const char* w1_n48 = ".warpgroups = 1, .block_n = 48,";
constexpr const char* w2_n32 = ".warpgroups = 2, .block_n = 32,";
constexpr const char* w1_n64 = ".warpgroups = 1, .block_n = 64,";
constexpr const char* w2_n64 = ".warpgroups = 2, .block_n = 64,";
constexpr const char* w2_n80 = ".warpgroups = 2, .block_n = 80,";
constexpr const char* w2_n112 = ".warpgroups = 2, .block_n = 112,";
constexpr const char* w2_n128 = ".warpgroups = 2, .block_n = 128,";

TEST(EmulatedFwdRanged, HeadDims) {
  expect_right("fwd b1 h2/1 q200 k150 d8 f16", w2_n128);
  expect_right("fwd b2 h2/1 q100 k200 d40 f16", w2_n64);
  expect_right("fwd b1 h2/1 q300 k300 d96 bf16 causal-br", w2_n128);
  expect_right("fwd b2 h2/2 q150 k200 d72 bf16 causal-tl", w2_n64);
  expect_right("fwd b1 h2/1 q260 k300 d192/128 bf16 causal-br", w2_n112);
  expect_right("fwd b1 h2/1 q200 k170 d160 f16", w2_n80);
  expect_right("fwd b1 h2/1 q130 k200 d184 bf16 causal-br bhsd", w1_n64);
  expect_right("fwd b1 h2/1 q130 k300 d40/72 f16 w50,20", w1_n64);
}

TEST(EmulatedFwdRanged, Windows) {
  expect_right("fwd b1 h2/1 q500 k500 d64 bf16 causal-br w127,0", w2_n128);
  expect_right("fwd b1 h2/1 q500 k700 d64 f16 w30,60", w2_n64);
  expect_right("fwd b1 h2/1 q400 k300 d64 f16 causal-tl w0,0", w2_n64);
  expect_right("fwd b1 h2/1 q600 k600 d128 f16 causal-br w200,-1 sink", w2_n128);
  expect_right("fwd b2 h1/1 q300 k100 d128 bf16 causal-br w64,10", w1_n64);
}

TEST(EmulatedFwdRanged, SoftcapsAndSinks) {
  expect_right("fwd b1 h2/1 q200 k400 d256 f16 causal-br w100,0 cap50", w2_n64);
  expect_right("fwd b1 h2/1 q200 k200 d256 bf16 causal-br cap2 sink", w1_n64);
  expect_right("fwd b1 h2/1 q200 k200 d128 f16 causal-br cap30 scale-0.5", w2_n128);
}

TEST(EmulatedFwdRanged, LengthsOnTheDevice) {
  expect_right("fwd b5 h2/1 q300 k300 d64 f16 causal-br var=700,700", w2_n128);
  expect_right("fwd b4 h2/1 q200 k260 d128 bf16 causal-br var=300,500 sink", w2_n128);
  expect_right("fwd b3 h2/1 q100 k300 d128 bf16 used-k", w2_n64);
  expect_right("fwd b4 h2/2 q100 k200 d64 f16 w40,0 cap10 used-q used-k", w1_n64);
  expect_right("fwd b3 h1/1 q150 k150 d256 bf16 causal-br var used-k", w2_n64);
}

TEST(EmulatedFwdRanged, BiasesAndMasks) {
  expect_right("fwd b2 h2/2 q150 k150 d64 f16 bias=1hqk", w2_n64);
  expect_right("fwd b2 h2/1 q130 k131 d64 f16 mask=b1qk", w2_n64);
  expect_right("fwd b2 h2/1 q100 k77 d64 f16 bias=bhqk:f32 mask=b11k scale-0.3", w2_n64);
  expect_right("fwd b2 h2/1 q200 k200 d128 bf16 causal-br bias=1h1k", w2_n64);
  expect_right("fwd b1 h2/1 q130 k200 d192/128 bf16 causal-br bias=1h1k", w1_n48);
  expect_right("fwd b2 h2/1 q160 k200 d128 bf16 causal-br mask=b11k cap20 sink", w2_n64);
  expect_right("fwd b5 h2/2 q49 k49 d32 f16 bias=1hqk mask=b11k", w1_n64);
  expect_right("fwd b3 h2/2 q90 k120 d80 bf16 w40,20 bias=bh1k mask=11qk var=150,200", w2_n64);
  expect_right("fwd b2 h8/2 q1 k2000 d128 bf16 mask=b11k used-k", w1_n64);
  expect_right("fwd b1 h2/1 q140 k140 d256 f16 causal-br w50,0 bias=11q1", w2_n32);
  expect_right("fwd b1 h2/1 q140 k140 d64 f16 scale-0.125", w2_n64);
}

// With few rows and many keys, as when a model decodes: heads of a group are rows of a tile, and keys are split.
TEST(EmulatedFwdRanged, FewRows) {
  expect_right("fwd b2 h8/2 q1 k3000 d128 bf16", w1_n64);
  expect_right("fwd b3 h8/2 q1 k2000 d128 bf16 used-k", w1_n64);
  expect_right("fwd b2 h8/1 q1 k1500 d64 bf16 used-k sink", w1_n64);
  expect_right("fwd b2 h4/2 q1 k2500 d256 bf16 w1100,0 used-k cap50", w1_n64);
  expect_right("fwd b2 h8/2 q8 k1600 d128 f16 causal-br used-k", w1_n64);
  expect_right("fwd b3 h16/2 q5 k1300 d128 f16 causal-br used-q used-k sink", w1_n64);
  expect_right("fwd b5 h4/1 q20 k1400 d128 f16 causal-br var=40,3000", w1_n64);
}

}  // namespace
}  // namespace attune::emulator
