// sm90/fwd on the emulated machine, through the lab's gate.
#include <gtest/gtest.h>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

TEST(EmulatedFwd, TakesEveryConfiguration) {
  for (const char* problem : {"fwd b1 h2/1 q300 k300 d64 f16 causal-br", "fwd b1 h2/1 q300 k300 d128 f16 causal-br",
                              "fwd b1 h2/1 q300 k300 d256 f16 causal-br", "fwd b1 h2/1 q200 k300 d64 bf16",
                              "fwd b1 h2/1 q300 k300 d128 bf16", "fwd b1 h2/1 q300 k300 d256 bf16"})
    for (const std::string& config : configurations("sm90/fwd", problem))
      for (uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(verdict("sm90/fwd", problem, {config, seed}), "");
}

}  // namespace
}  // namespace attune::emulator
