// Stands in for kernels/common/registers.cuh.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/convert.hpp"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "tests/sm90_emulated/machine.hpp"

namespace attune::device {

template <Dtype dtype>
uint32_t pack(float low, float high) {
  const auto bits = [](float x) { return uint32_t{dtype == Dtype::bf16 ? float_to_bf16(x) : float_to_f16(x)}; };
  return bits(high) << 16 | bits(low);
}

inline float flush(float x) { return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x) : x; }
inline float exp2_approx(float x) { return flush(std::exp2(flush(x))); }
inline float log2_approx(float x) { return std::log2(flush(x)); }
inline float reciprocal_approx(float x) { return flush(1 / flush(x)); }

template <typename T>
void store_global(void* address, const T& x) {
  if (reinterpret_cast<uintptr_t>(address) % sizeof x != 0)
    emulator::fail("stores " + std::to_string(sizeof x) + " bytes at an address that is no multiple of it");
  std::memcpy(address, &x, sizeof x);
}
inline void store_8_bytes(void* address, uint32_t x, uint32_t y) {
  const uint32_t pair[2] = {x, y};
  store_global(address, pair);
}
inline void store_16_bytes(void* address, const uint32_t (&x)[4]) { store_global(address, x); }

// Matrices of 8 x 8 elements of 16 bits: lane l gives the row l % 8 of matrix l / 8, and holds, of each matrix, the
// elements 2 * (l % 4) and the next of row l / 4, or of the transposed matrix.
struct MatrixArguments {
  char* row;
  uint32_t* x;
};
template <bool store, bool transposed>
void move_matrices(void* const (&arguments)[32]) {
  const auto of = [&](int lane) { return static_cast<const MatrixArguments*>(arguments[lane]); };
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int half = 0; half < 2; ++half) {
        const int first = lane / 4, second = lane % 4 * 2 + half;
        const int row = transposed ? second : first, column = transposed ? first : second;
        char* const element = of(matrix * 8 + row)->row + column * 2;
        auto* const held = reinterpret_cast<char*>(&of(lane)->x[matrix]) + half * 2;
        std::memcpy(store ? element : held, store ? held : element, 2);
      }
}
template <bool store, bool transposed>
void matrices_x4(const char* instruction, const void* row, uint32_t (&x)[4]) {
  if (shared_address(row) % 16 != 0) emulator::fail("gives a row of a matrix that is not aligned to 16 bytes");
  MatrixArguments arguments{static_cast<char*>(const_cast<void*>(row)), x};
  emulator::warp_collective(instruction, 0xffffffffu, &arguments, move_matrices<store, transposed>);
}

inline void stmatrix_x4(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t x[4] = {a, b, c, d};
  matrices_x4<true, false>("stmatrix", row, x);
}
inline void stmatrix_x4_trans(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t x[4] = {a, b, c, d};
  matrices_x4<true, true>("stmatrix.trans", row, x);
}
inline void ldmatrix_x4(uint32_t (&x)[4], const void* row) { matrices_x4<false, false>("ldmatrix", row, x); }
inline void ldmatrix_x4_trans(uint32_t (&x)[4], const void* row) { matrices_x4<false, true>("ldmatrix.trans", row, x); }

struct MmaArguments {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};
template <Dtype dtype>
void multiply_fragments(void* const (&arguments)[32]) {
  const auto of = [&](int lane) { return static_cast<const MmaArguments*>(arguments[lane]); };
  const auto half = [](uint32_t pair, int i) {
    const auto bits = static_cast<uint16_t>(pair >> (16 * i));
    return dtype == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
  };
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2; ++i) {
      for (int r = 0; r < 4; ++r) a[lane / 4 + r % 2 * 8][lane % 4 * 2 + i + r / 2 * 8] = half(of(lane)->a[r], i);
      for (int r = 0; r < 2; ++r) b[lane % 4 * 2 + i + r * 8][lane / 4] = half(of(lane)->b[r], i);
    }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 16; ++k) of(lane)->d[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
}
template <Dtype dtype>
void mma_16x8x16(float* d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  MmaArguments arguments{d, a, {b0, b1}};
  emulator::warp_collective("mma.sync", 0xffffffffu, &arguments, multiply_fragments<dtype>);
}

template <int count>
void give_registers() {
  emulator::give_registers(count);
}
template <int count>
void take_registers() {
  emulator::take_registers(count);
}

// Kernels run one after the other here.
inline void grid_dependency_wait() {}
inline void grid_dependency_launch() {}

}  // namespace attune::device
