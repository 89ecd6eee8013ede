// Probe: what a launch costs that has nothing to do.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device::probe_empty {

struct Variant {};
struct Config {};
struct Params {
  int32_t unused;
};

#ifdef __CUDACC_RTC__
template <Variant, Config>
ATTUNE_DEVICE void run(const Params&) {}
#endif

}  // namespace attune::device::probe_empty
