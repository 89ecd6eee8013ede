// sm90/fwd_small on the emulated machine, through the lab's gate.
#include <gtest/gtest.h>

#include <set>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

constexpr auto kernel = "sm90/fwd_small";

// Some configurations take only short problems; those with clusters have work for every CTA only in long ones.
TEST(EmulatedFwdSmall, EveryConfigurationIsRightInAnyOrder) {
  std::set<std::string> seen;
  for (const char* problem : {"fwd b1 h2/1 q100 k120 d64 bf16 causal-br", "fwd b1 h2/1 q70 k1300 d64 bf16 causal-br",
                              "fwd b1 h2/1 q70 k1300 d128 bf16 causal-br", "fwd b1 h2/1 q100 k120 d64 f16",
                              "fwd b1 h2/1 q10 k1300 d64 f16", "fwd b1 h2/1 q10 k1300 d128 f16"}) {
    const std::vector<Options> runs = every_configuration(kernel, problem, {0, 1, 2});
    for (const Options& options : runs) seen.insert(options.config);
    EXPECT_EQ(verdict(kernel, problem, runs), "");
  }
  EXPECT_EQ(seen.size(), 15u);
}

TEST(EmulatedFwdSmall, MasksLengthsAndPackedHeads) {
  for (const char* problem : {"fwd b2 h8/2 q1 k300 d64 bf16 causal-br", "fwd b2 h8/1 q5 k77 d128 bf16 causal-br",
                              "fwd b1 h2/1 q130 k60 d64 bf16 causal-br", "fwd b1 h2/1 q200 k100 d64 bf16 causal-tl",
                              "fwd b3 h3/1 q7 k129 d64 f16", "fwd b1 h4/4 q64 k64 d128 f16"})
    EXPECT_EQ(verdict(kernel, problem, every_configuration(kernel, problem, {3})), "");
}

TEST(EmulatedFwdSmall, StandsHostileInput) {
  for (const lab::InputKind input : lab::all_input_kinds)
    for (const char* problem : {"fwd b1 h2/1 q60 k200 d64 bf16 causal-br", "fwd b1 h2/1 q60 k200 d128 f16"})
      EXPECT_EQ(verdict(kernel, lab::Case{problem, "", input, 1, lab::Storage::padded, std::nullopt},
                        every_configuration(kernel, problem, {4})),
                "");
}

TEST(EmulatedFwdSmall, KeysBeforeTheKernelAheadHasEnded) {
  for (const uint64_t seed : {0, 1, 2}) {
    EXPECT_EQ(
        verdict(kernel, "fwd b1 h2/1 q60 k500 d64 f16 overlap kvready",
                {".row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 1, .paired = false", seed}),
        "");
    EXPECT_EQ(
        verdict(kernel, "fwd b1 h2/1 q60 k500 d128 f16 overlap kvready",
                {".row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 3, .cluster = 1, .paired = false", seed}),
        "");
  }
}

}  // namespace
}  // namespace attune::emulator
