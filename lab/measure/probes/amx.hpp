// Probe: products of AMX tiles.
#pragma once

#include <cstdint>

namespace attune::lab {

// Multiplies bf16 tiles of random numbers into four float32 accumulators, `rounds` times, on this thread. Returns the
// number of operations. Only where cpu::amx_absence() is "".
double multiply_amx_tiles(int64_t rounds);

// The same with each product right after the other: no ceiling, but nothing else slows down as much where the core's
// other thread is busy (docs/cpu-performance.md).
double multiply_amx_tiles_at_once(int64_t rounds);

}  // namespace attune::lab
