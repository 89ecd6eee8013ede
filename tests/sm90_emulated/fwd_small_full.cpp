// sm90/fwd_small for the emulator: every configuration, full, f16.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd_small.cuh"

ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 1, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 128, .stages = 1, .cluster = 2, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 4, .block_n = 64, .stages = 2, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 2, .key_groups = 2, .block_n = 64, .stages = 3, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 4, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 8, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 8, .cluster = 16, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 3, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 3, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 2, .cluster = 4, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 2, .cluster = 8, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = false),
                (.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 4, .cluster = 16, .paired = false))
// K and V before the kernel ahead has ended.
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 64, .causal = false, .early_keys = true),
                (.row_groups = 1, .key_groups = 2, .block_n = 64, .stages = 4, .cluster = 1, .paired = false))
ATTUNE_EMULATED(sm90_fwd_small, (.dtype = Dtype::f16, .dim = 128, .causal = false, .early_keys = true),
                (.row_groups = 1, .key_groups = 1, .block_n = 64, .stages = 3, .cluster = 1, .paired = false))
