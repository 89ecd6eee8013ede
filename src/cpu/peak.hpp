// What this machine can do at most, measured: the ceilings that shares of peak refer to.
#pragma once

namespace attune::cpu {

// float32 operations per second of `threads` threads, by multiply-adds in registers at the best level in use.
double measure_peak_flops(int threads);

// Bytes per second that `threads` threads read together from memory too large for the caches.
double measure_read_bandwidth(int threads);

}  // namespace attune::cpu
