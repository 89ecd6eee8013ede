// Words shared by host and device: fixed-width integers, dtypes, and the two function qualifiers.
//
// Device code is freestanding: NVRTC sees no standard headers, so the integer names are made here.
#pragma once

#ifdef __CUDACC_RTC__
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
#define ATTUNE_DEVICE __device__ __forceinline__
#define ATTUNE_SHARED_CODE __host__ __device__ __forceinline__ constexpr  // constant expressions for both sides
#else
#include <cstdint>
#define ATTUNE_SHARED_CODE constexpr
#endif

namespace attune::device {

enum class Dtype : int32_t { f16 = 0, bf16 = 1, f32 = 2 };  // the values of attune_dtype

ATTUNE_SHARED_CODE int bytes_of(Dtype dtype) { return dtype == Dtype::f32 ? 4 : 2; }

template <typename T>
ATTUNE_SHARED_CODE T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}
template <typename T>
ATTUNE_SHARED_CODE T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}
template <typename T>
ATTUNE_SHARED_CODE T min_of(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
ATTUNE_SHARED_CODE T max_of(T a, T b) {
  return a > b ? a : b;
}

// A CUtensorMap: opaque to us, made by the driver, read by the copy engine.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

}  // namespace attune::device
