// Plain kernels for the emulator, as steps of Hopper kernels may use them.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/any/fwd.cuh"
#include "kernels/any/merge.cuh"

ATTUNE_EMULATED(any_merge, (), (.warps = 4))
ATTUNE_EMULATED(any_fwd, (.dtype = Dtype::f16, .dim_qk = 64, .dim_v = 64), (.warps = 8, .rows_per_warp = 4))
