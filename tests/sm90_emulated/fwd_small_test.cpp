// sm90/fwd_small on the emulated machine, through the lab's gate.
#include <gtest/gtest.h>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

TEST(EmulatedFwdSmall, TakesEveryConfiguration) {
  for (const char* problem :
       {"fwd b1 h2/1 q100 k130 d64 bf16 causal-br", "fwd b1 h2/1 q100 k1300 d64 bf16 causal-br", "fwd b1 h4/1 q100 k1300 d128 bf16 causal-br",
        "fwd b1 h2/1 q100 k130 d64 f16", "fwd b1 h2/1 q100 k1300 d64 f16", "fwd b1 h4/1 q10 k1300 d128 f16"})
    for (const std::string& config : configurations("sm90/fwd_small", problem))
      for (uint64_t seed = 0; seed < 5; ++seed) EXPECT_EQ(verdict("sm90/fwd_small", problem, {config, seed}), "");
}

}  // namespace
}  // namespace attune::emulator
