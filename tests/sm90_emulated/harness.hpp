// Runs Hopper kernels without a card: their own recipes and parameters on the emulated machine, judged by the gate.
//
//   #include "tests/sm90_emulated/harness.hpp"
//   #include "kernels/sm90/fwd.cuh"
//
//   ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true), (.warpgroups = 3, ...))
//
//   EXPECT_EQ(emulator::verdict("sm90/fwd", "fwd b1 h2/1 q300 k300 d64 f16 causal-br"), "");
//
// ATTUNE_EMULATED compiles a kernel for one Variant and Config, written as the texts of the kernel's recipe are. What a
// problem asks for and is not compiled fails with the line to add.
#pragma once

#include "tests/sm90_emulated/instances.hpp"
#include "tests/sm90_emulated/run.hpp"
