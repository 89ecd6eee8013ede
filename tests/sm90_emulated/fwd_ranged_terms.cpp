// sm90/fwd_ranged for the emulator: biases and boolean masks.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_ranged.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_RANGED(f16, 64, 64, full, general, false, ATTUNE_D64_2X64)
ATTUNE_RANGED(bf16, 128, 128, causal, general, false, ATTUNE_D128_2X64)
ATTUNE_RANGED(bf16, 192, 128, causal, general, false, ATTUNE_D192_1X48)
ATTUNE_RANGED(f16, 32, 32, full, general, false, ATTUNE_D64_1X64)
ATTUNE_RANGED(bf16, 80, 80, ranged, general, true, ATTUNE_D128_2X64)
ATTUNE_RANGED(bf16, 128, 128, full, general, true, ATTUNE_D128_1X64)
ATTUNE_RANGED(f16, 256, 256, ranged, general, false, ATTUNE_D256_2X32)
