// sm90/fwd_ranged for the emulator: head dims between those of the dense kernel, and those that differ for values.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_ranged.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_RANGED(f16, 16, 32, full, plain, false, ATTUNE_D64_2X128)
ATTUNE_RANGED(f16, 48, 48, full, plain, false, ATTUNE_D64_2X64)
ATTUNE_RANGED(bf16, 96, 96, causal, plain, false, ATTUNE_D128_2X128)
ATTUNE_RANGED(bf16, 80, 80, causal, plain, false, ATTUNE_D128_2X64)
ATTUNE_RANGED(bf16, 192, 128, causal, plain, false, ATTUNE_D192_2X112)
ATTUNE_RANGED(f16, 160, 160, full, plain, false, ATTUNE_D192_2X80)
ATTUNE_RANGED(bf16, 192, 192, causal, plain, false, ATTUNE_D192_1X64)
ATTUNE_RANGED(f16, 48, 80, ranged, plain, false, ATTUNE_D128_1X64)
