// sm90/fwd for the emulator: every configuration, causal, f16.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/sm90/fwd.cuh"

ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 3, .block_n = 128, .stages_k = 3, .stages_v = 3, .q_slots = 2, .consumer_registers = 160,
                 .producer_registers = 32, .turns = Turns::products, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 4, .block_n = 64, .stages_k = 4, .stages_v = 4, .q_slots = 2, .consumer_registers = 112,
                 .producer_registers = 32, .turns = Turns::products, .early_waits = true))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 4, .block_n = 64, .stages_k = 4, .stages_v = 4, .q_slots = 2, .consumer_registers = 112,
                 .producer_registers = 32, .turns = Turns::none, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 2, .block_n = 64, .stages_k = 4, .stages_v = 4, .q_slots = 2, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::none, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 1, .block_n = 64, .stages_k = 8, .stages_v = 8, .q_slots = 2, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::none, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 128, .causal = true),
                (.warpgroups = 2, .block_n = 128, .stages_k = 3, .stages_v = 2, .q_slots = 2, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::products, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 128, .causal = true),
                (.warpgroups = 3, .block_n = 64, .stages_k = 3, .stages_v = 3, .q_slots = 2, .consumer_registers = 160,
                 .producer_registers = 32, .turns = Turns::none, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 128, .causal = true),
                (.warpgroups = 1, .block_n = 64, .stages_k = 5, .stages_v = 4, .q_slots = 2, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::none, .early_waits = false))
ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 256, .causal = true),
                (.warpgroups = 2, .block_n = 64, .stages_k = 3, .stages_v = 2, .q_slots = 1, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::none, .early_waits = false))
