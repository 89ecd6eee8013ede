// Probe: products of AMX tiles, where the processor has them and the system lets a process use them.
#pragma once

#include <cstdint>
#include <string>

namespace attune::lab {

// Why AMX cannot be used here, as a clause; "" if it can. Tries one product, so that nothing later meets SIGILL.
std::string amx_absence();

// Multiplies bf16 tiles of random numbers into four float32 accumulators, `rounds` times, on this thread. Returns the
// number of operations. Only where amx_absence() is "".
double multiply_amx_tiles(int64_t rounds);

}  // namespace attune::lab
