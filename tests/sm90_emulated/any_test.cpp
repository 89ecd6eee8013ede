// Plain kernels on the emulated machine.
#include <gtest/gtest.h>

#include "tests/sm90_emulated/run.hpp"

namespace attune::emulator {
namespace {

TEST(EmulatedAny, PlainKernelsRunToo) {
  EXPECT_EQ(verdict("any/fwd", "fwd b2 h2/1 q16 k70 d64 f16 var sink causal-br"), "");
  EXPECT_EQ(verdict("any/merge", "merge p3 b1 h2 q70 d64 bf16"), "");
}

TEST(EmulatedAny, WhatIsNotCompiledSaysWhatToAdd) {
  EXPECT_NE(
      verdict("any/fwd", "fwd b1 h1/1 q16 k70 d128 f16").find("\nATTUNE_EMULATED(any_fwd, (.dtype = Dtype::f16, "),
      std::string::npos);
}

}  // namespace
}  // namespace attune::emulator
