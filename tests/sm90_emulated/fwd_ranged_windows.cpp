// sm90/fwd_ranged for the emulator: windows, with and without softcap.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_ranged.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_RANGED(bf16, 64, 64, ranged, plain, false, ATTUNE_D64_2X128)
ATTUNE_RANGED(f16, 64, 64, ranged, plain, false, ATTUNE_D64_2X64)
ATTUNE_RANGED(f16, 128, 128, ranged, plain, false, ATTUNE_D128_2X128)
ATTUNE_RANGED(bf16, 128, 128, ranged, plain, false, ATTUNE_D128_1X64)
ATTUNE_RANGED(f16, 256, 256, ranged, capped, false, ATTUNE_D256_2X64)
ATTUNE_RANGED(bf16, 256, 256, causal, capped, false, ATTUNE_D256_1X64)
ATTUNE_RANGED(f16, 128, 128, causal, capped, false, ATTUNE_D128_2X128)
