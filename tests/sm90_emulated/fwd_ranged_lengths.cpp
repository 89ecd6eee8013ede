// sm90/fwd_ranged for the emulator: tiles from a list, and the kernels before and after it that list them and join
// parts.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/combine.cuh"
#include "kernels/sm90/fwd_ranged.cuh"
#include "kernels/sm90/tile_list.cuh"
#include "tests/sm90_emulated/fwd_ranged_instances.hpp"

ATTUNE_EMULATED(sm90_tile_list, (), (.warps = 32))
ATTUNE_EMULATED(sm90_combine, (.dtype = Dtype::f16), (.rows = 4, .warps_per_row = 1))
ATTUNE_EMULATED(sm90_combine, (.dtype = Dtype::bf16), (.rows = 4, .warps_per_row = 1))
ATTUNE_EMULATED(sm90_combine, (.dtype = Dtype::f16), (.rows = 1, .warps_per_row = 8))
ATTUNE_EMULATED(sm90_combine, (.dtype = Dtype::bf16), (.rows = 1, .warps_per_row = 8))

ATTUNE_RANGED(f16, 64, 64, causal, plain, true, ATTUNE_D64_2X128)
ATTUNE_RANGED(bf16, 128, 128, causal, plain, true, ATTUNE_D128_2X128)
ATTUNE_RANGED(bf16, 128, 128, full, plain, true, ATTUNE_D128_2X64)
ATTUNE_RANGED(f16, 64, 64, ranged, capped, true, ATTUNE_D64_1X64)
ATTUNE_RANGED(bf16, 256, 256, causal, plain, true, ATTUNE_D256_2X64)
ATTUNE_RANGED(bf16, 128, 128, full, plain, true, ATTUNE_D128_1X64)
ATTUNE_RANGED(f16, 128, 128, causal, plain, true, ATTUNE_D128_1X64)
ATTUNE_RANGED(bf16, 64, 64, full, plain, true, ATTUNE_D64_1X64)
ATTUNE_RANGED(bf16, 256, 256, ranged, capped, true, ATTUNE_D256_1X64)
