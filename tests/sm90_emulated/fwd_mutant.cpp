// sm90/fwd with a mistake: it never waits for its products.
#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/common/softmax.cuh"
#include "kernels/common/wgmma.cuh"

namespace attune::device {
template <int pending>
void forgotten_wait() {}
}  // namespace attune::device

#define wgmma_wait forgotten_wait
#define sm90_fwd sm90_fwd_mutant
#include "kernels/sm90/fwd.cuh"
#undef sm90_fwd

ATTUNE_EMULATED(sm90_fwd_mutant, (.dtype = Dtype::f16, .dim = 64, .causal = true),
                (.warpgroups = 1, .block_n = 64, .stages_k = 8, .stages_v = 8, .q_slots = 2, .consumer_registers = 240,
                 .producer_registers = 24, .turns = Turns::none, .early_waits = false))
