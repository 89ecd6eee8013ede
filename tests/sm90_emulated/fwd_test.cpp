// sm90/fwd on the emulated machine, through the lab's gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

constexpr auto kernel = "sm90/fwd";

// Lengths that are no multiple of a tile, several tiles to a CTA.
TEST(EmulatedFwd, EveryConfigurationIsRightInAnyOrder) {
  for (const char* problem : {"fwd b1 h2/1 q300 k300 d64 f16 causal-br", "fwd b1 h2/1 q300 k300 d128 f16 causal-br",
                              "fwd b1 h2/1 q200 k200 d256 f16 causal-br", "fwd b1 h2/1 q300 k300 d64 bf16",
                              "fwd b1 h2/1 q300 k300 d128 bf16", "fwd b1 h2/1 q200 k200 d256 bf16"})
    EXPECT_EQ(verdict(kernel, problem, every_configuration(kernel, problem)), "");
}

TEST(EmulatedFwd, MasksAndLengths) {
  for (const char* problem : {"fwd b2 h4/2 q1 k700 d64 f16 causal-br", "fwd b3 h2/1 q70 k500 d128 f16 causal-br",
                              "fwd b1 h3/3 q257 k65 d64 f16 causal-br", "fwd b1 h2/1 q300 k100 d128 f16 causal-tl",
                              "fwd b2 h2/1 q130 k390 d256 f16 causal-tl", "fwd b2 h4/1 q65 k129 d64 bf16",
                              "fwd b1 h1/1 q5 k1 d128 bf16", "fwd b1 h6/2 q129 k383 d256 bf16"})
    EXPECT_EQ(verdict(kernel, problem, every_configuration(kernel, problem, {2})), "");
}

// What lies between and behind the tensors is NaN.
TEST(EmulatedFwd, StandsHostileInput) {
  for (const lab::InputKind input : lab::all_input_kinds)
    for (const char* problem : {"fwd b1 h2/1 q140 k200 d64 f16 causal-br", "fwd b1 h2/1 q140 k200 d128 bf16"})
      EXPECT_EQ(verdict(kernel, lab::Case{problem, "", input, 1, lab::Storage::padded, std::nullopt},
                        every_configuration(kernel, problem, {4})),
                "");
}

// With one multiprocessor a single CTA walks all tiles, with many each has one.
TEST(EmulatedFwd, AnyNumberOfMultiprocessors) {
  const std::string problem = "fwd b2 h4/2 q200 k200 d64 f16 causal-br";
  for (const int sm_count : {1, 3, 7, 132})
    EXPECT_EQ(verdict(kernel, problem, every_configuration(kernel, problem, {1}, sm_count)), "");
}

TEST(EmulatedFwd, AMutantDoesNotPass) {
  const Options right{
      ".warpgroups = 1, .block_n = 64, .stages_k = 8, .stages_v = 8, .q_slots = 2, .consumer_registers = 240, "
      ".producer_registers = 24, .turns = Turns::none, .early_waits = false"};
  Options mutant = right;
  mutant.scope = "sm90_fwd_mutant";
  const std::string problem = "fwd b1 h1/1 q50 k60 d64 f16 causal-br";
  EXPECT_EQ(verdict("sm90/fwd", problem, right), "");
  EXPECT_THAT(verdict("sm90/fwd", problem, mutant), testing::HasSubstr("without having waited for its products"));
}

}  // namespace
}  // namespace attune::emulator
