// sm90/fwd_ranged for the emulator: heads so wide that two warpgroups share the columns of O.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_ranged.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_RANGED(bf16, 512, 512, causal, plain, false, ATTUNE_D512_2X32)
ATTUNE_RANGED(bf16, 272, 512, causal, plain, false, ATTUNE_D512_2X32)
ATTUNE_RANGED(f16, 512, 512, full, plain, true, ATTUNE_D512_2X32)
ATTUNE_RANGED(f16, 320, 128, full, general, false, ATTUNE_D512_2X32)
ATTUNE_RANGED_TERMS(f16, 320, 128, full, staged, half, false, ATTUNE_D512_2X32)
