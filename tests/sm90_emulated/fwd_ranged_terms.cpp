// sm90/fwd_ranged for the emulator: biases and boolean masks.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_ranged.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_RANGED(f16, 64, 64, full, general, false, ATTUNE_D64_2X64)
ATTUNE_RANGED(f16, 64, 64, full, general, true, ATTUNE_D64_2X64)
ATTUNE_RANGED(f16, 256, 256, ranged, general, false, ATTUNE_D256_2X32)
ATTUNE_RANGED(bf16, 80, 80, ranged, general, true, ATTUNE_D128_2X64_TERMS)
ATTUNE_RANGED(bf16, 128, 128, causal, general, true, ATTUNE_D128_2X64_TERMS)
ATTUNE_RANGED(f16, 32, 32, full, general, true, ATTUNE_D64_1X64_TERMS)

ATTUNE_RANGED(bf16, 128, 128, causal, staged, false, ATTUNE_D128_2X64_TERMS)
ATTUNE_RANGED(bf16, 128, 128, causal, staged, true, ATTUNE_D128_2X64_TERMS)
ATTUNE_RANGED(bf16, 128, 128, full, staged, true, ATTUNE_D128_1X64_TERMS)
ATTUNE_RANGED(bf16, 192, 128, causal, staged, false, ATTUNE_D192_1X48)
ATTUNE_RANGED(f16, 64, 64, full, staged, true, ATTUNE_D64_2X64)
ATTUNE_RANGED(f16, 64, 64, causal, staged, true, ATTUNE_D64_2X64)
ATTUNE_RANGED_TERMS(f16, 64, 64, full, staged, half, false, ATTUNE_D64_2X64)
ATTUNE_RANGED_TERMS(f16, 64, 64, full, staged, mask, false, ATTUNE_D64_2X64)
ATTUNE_RANGED_TERMS(f16, 64, 64, causal, staged, mask, false, ATTUNE_D64_2X64)
ATTUNE_RANGED_TERMS(f16, 64, 64, full, staged, single, true, ATTUNE_D64_2X64)
ATTUNE_RANGED_TERMS(bf16, 80, 80, ranged, staged, mask, true, ATTUNE_D128_2X64_TERMS)
ATTUNE_RANGED_TERMS(f16, 32, 32, full, staged, half, true, ATTUNE_D64_1X64_TERMS)
ATTUNE_RANGED_TERMS(f16, 256, 256, ranged, staged, half, false, ATTUNE_D256_2X32)
