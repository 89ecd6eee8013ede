// Stands in for what kernels/any/simt.cuh asks of the machine; the rest is the original's.
#pragma once

#include <cmath>
#include <limits>

#include "core/convert.hpp"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

#define ATTUNE_UNROLL
#define ATTUNE_ROLLED

namespace attune::device {

using std::exp2, std::fma, std::fmax, std::fmin, std::tanh, std::fabs, std::exp, std::log;

inline void* shared_memory() { return emulator::dynamic_shared_memory(); }
inline float infinity() { return std::numeric_limits<float>::infinity(); }
inline float from_16_bits(Dtype dtype, uint16_t bits) {
  return dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}
inline uint16_t to_16_bits(Dtype dtype, float value) {
  return dtype == Dtype::bf16 ? float_to_bf16(value) : float_to_f16(value);
}

}  // namespace attune::device

#undef __CUDACC_RTC__
#include "../../../../../kernels/any/simt.cuh"
#define __CUDACC_RTC__
