// Every rung for one element type and head dimension: ELEMENT, D and RUNGS, the name of the function that lists them,
// are defined by the file that includes this, and nothing else does.
#include "tests/ladder/device_words.hpp"
// The device's words come first.
#include "kernels/ladder/base.cuh"
#include "tests/ladder/rungs.hpp"

namespace {
namespace minimal {
#include "kernels/ladder/01_minimal.cu"
}
namespace block_tiling {
#include "kernels/ladder/02_block_tiling.cu"
}
namespace warp_reductions {
#include "kernels/ladder/03_warp_reductions.cu"
}
namespace fewer_barriers {
#include "kernels/ladder/04_fewer_barriers.cu"
}
namespace eight_warps {
#include "kernels/ladder/05_eight_warps.cu"
}
namespace inverted {
#include "kernels/ladder/06_inverted.cu"
}
namespace unfused {
#include "kernels/ladder/07_unfused.cu"
}
namespace wmma_scores {
#include "kernels/ladder/08_wmma_scores.cu"
}
namespace wmma_both {
#include "kernels/ladder/09_wmma_both.cu"
}
namespace async_producer {
#include "kernels/ladder/10_async_producer.cu"
}
namespace xor_swizzle {
#include "kernels/ladder/11_xor_swizzle.cu"
}
namespace registers {
#include "kernels/ladder/12_registers.cu"
}
namespace persistent {
#include "kernels/ladder/13_persistent.cu"
}
namespace starting_file {
#include "lab/try/new_kernel.cu"
}
#undef PRODUCERS
#define PRODUCERS 1
namespace one_producer {
#include "kernels/ladder/13_persistent.cu"
}
#undef PRODUCERS
#define PRODUCERS 2
#undef STAGES
#define STAGES 1
namespace one_stage {
#include "kernels/ladder/13_persistent.cu"
}
#undef STAGES
#define STAGES 2
#undef SWIZZLE
#define SWIZZLE 0
namespace straight {
#include "kernels/ladder/13_persistent.cu"
}
}  // namespace

attune::ladder::Rungs attune::ladder::RUNGS() {
  return {{"new_kernel", thread<&starting_file::attention>},
          {"01_minimal", thread<&minimal::attention>},
          {"02_block_tiling", thread<&block_tiling::attention>},
          {"03_warp_reductions", thread<&warp_reductions::attention>},
          {"04_fewer_barriers", thread<&fewer_barriers::attention>},
          {"05_eight_warps", thread<&eight_warps::attention>},
          {"06_inverted", thread<&inverted::attention>},
          {"07_unfused", thread<&unfused::softmax>},
          {"08_wmma_scores", thread<&wmma_scores::attention>},
          {"09_wmma_both", thread<&wmma_both::attention>},
          {"10_async_producer", thread<&async_producer::attention>},
          {"11_xor_swizzle", thread<&xor_swizzle::attention>},
          {"12_registers", thread<&registers::attention>},
          {"13_persistent", thread<&persistent::attention>},
          {"13_persistent PRODUCERS=1", thread<&one_producer::attention>},
          {"13_persistent STAGES=1", thread<&one_stage::attention>},
          {"13_persistent SWIZZLE=0", thread<&straight::attention>}};
}
