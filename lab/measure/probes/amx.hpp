// Probe: products of AMX tiles.
#pragma once

#include <cstdint>

namespace attune::lab {

// Multiplies bf16 tiles of random numbers into four float32 accumulators, `rounds` times, on this thread. Returns the
// number of operations. Only where cpu::amx_absence() is "".
double multiply_amx_tiles(int64_t rounds);

}  // namespace attune::lab
