// The words of CUDA and of kernels/ladder/base.cuh that a rung uses, for the emulator. What an instruction does with a
// fragment is written here as its description has it, element by element.
#pragma once

#include "tests/ladder/emulator.hpp"

// A type of 16 bits that is float wherever something is computed.
template <attune::Dtype dtype>
struct Element16 {
  Element16() = default;
  explicit Element16(float value)
      : bits(dtype == attune::Dtype::f16 ? attune::float_to_f16(value) : attune::float_to_bf16(value)) {}
  explicit operator float() const {
    return dtype == attune::Dtype::f16 ? attune::f16_to_float(bits) : attune::bf16_to_float(bits);
  }
  uint16_t bits;
};
using EmulatedHalf = Element16<attune::Dtype::f16>;
using EmulatedBfloat16 = Element16<attune::Dtype::bf16>;

#define DEVICE inline
#define UNROLL
#define __global__ [[maybe_unused]] static
#define __launch_bounds__(...)
#define threadIdx ::attune::ladder::thread_index
#define blockIdx ::attune::ladder::block_index
#define gridDim ::attune::ladder::grid_size

inline auto& emulated_block() { return attune::ladder::Block::current(); }

inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }

inline void __syncthreads() { emulated_block().block_barrier(); }
inline void __syncwarp() { emulated_block().warp_barrier(); }
inline float __shfl_xor_sync(unsigned, float value, int distance) {
  const unsigned lane = threadIdx.x % 32;
  return emulated_block().exchange(value)[lane ^ static_cast<unsigned>(distance)];
}
inline float __shfl_sync(unsigned, float value, int from) {
  return emulated_block().exchange(value)[static_cast<unsigned>(from)];
}

template <typename T>
T* shared_memory() {
  return static_cast<T*>(emulated_block().shared_memory());
}
inline void copy_16(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void zero_16(void* to) { std::memset(to, 0, 16); }
inline void cp_async_16(void* to, const void* from, bool read) { emulated_block().copy_later(to, from, read); }
inline void cp_async_commit() { emulated_block().commit_copies(); }
template <int pending>
void cp_async_wait() {
  emulated_block().wait_for_copies(pending);
}
inline void barrier_sync(int id, int threads) { emulated_block().named_barrier(id, threads, true); }
inline void barrier_arrive(int id, int threads) { emulated_block().named_barrier(id, threads, false); }

template <typename T>
std::array<T, 2> unpack2(unsigned both) {
  std::array<T, 2> two;
  std::memcpy(two.data(), &both, sizeof both);
  return two;
}
template <typename T>
unsigned pack2(float low, float high) {
  const std::array<T, 2> two{T(low), T(high)};
  unsigned both = 0;
  std::memcpy(&both, two.data(), sizeof both);
  return both;
}

// Matrix m is the rows that lanes 8m to 8m + 7 name. Lane i gets of each matrix elements 2 (i % 4) and the next of row
// i / 4; of the transposed matrix with ldmatrix_transposed.
inline void load_matrices(unsigned (&x)[4], const void* row, bool transposed) {
  const auto rows = emulated_block().exchange(row);
  const unsigned lane = threadIdx.x % 32;
  const auto element = [&](unsigned matrix, unsigned r, unsigned c) {
    return static_cast<const uint16_t*>(rows[matrix * 8 + r])[c];
  };
  for (unsigned m = 0; m < 4; ++m) {
    const unsigned r = lane / 4, c = lane % 4 * 2;
    const unsigned low = transposed ? element(m, c, r) : element(m, r, c);
    const unsigned high = transposed ? element(m, c + 1, r) : element(m, r, c + 1);
    x[m] = low | high << 16;
  }
}
inline void ldmatrix(unsigned (&x)[4], const void* row) { load_matrices(x, row, false); }
inline void ldmatrix_transposed(unsigned (&x)[4], const void* row) { load_matrices(x, row, true); }

// Lane i has rows i / 4 and i / 4 + 8 of a, column i / 4 of b, and of k the elements 2 (i % 4), the next, and both + 8.
template <typename T>
void mma_16x8x16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  struct Operands {
    unsigned a[4], b[2];
  };
  const auto all = emulated_block().exchange(Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = lane / 4, low_or_high = i / 2, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned quad = k % 8 / 2, half = k / 8;
      const auto of_a = unpack2<T>(all[row * 4 + quad].a[half * 2 + low_or_high])[k % 2];
      const auto of_b = unpack2<T>(all[column * 4 + quad].b[half])[k % 2];
      c[i] += static_cast<float>(of_a) * static_cast<float>(of_b);
    }
  }
}

// Which lane has which element is nobody's business: here eight neighbours of the matrix in order, by rows.
template <typename T>
struct WmmaPart {
  std::array<T, 8> x;
};
template <typename T>
struct WmmaA : WmmaPart<T> {};
template <typename T, bool by_rows>
struct WmmaB : WmmaPart<T> {};
struct WmmaC : WmmaPart<float> {};

struct WmmaPlace {
  unsigned row = threadIdx.x % 32 / 2, column = threadIdx.x % 2 * 8;
};
template <typename T>
void wmma_load(WmmaPart<T>& m, const T* from, int step) {
  const WmmaPlace at;
  for (unsigned i = 0; i < 8; ++i) m.x[i] = from[at.row * static_cast<unsigned>(step) + at.column + i];
}
template <typename T>
void wmma_load(WmmaB<T, false>& m, const T* from, int step) {
  const WmmaPlace at;
  for (unsigned i = 0; i < 8; ++i) m.x[i] = from[(at.column + i) * static_cast<unsigned>(step) + at.row];
}
inline void wmma_store(float* to, const WmmaC& m, int step) {
  const WmmaPlace at;
  for (unsigned i = 0; i < 8; ++i) to[at.row * static_cast<unsigned>(step) + at.column + i] = m.x[i];
}
template <typename T, bool by_rows>
void wmma_mma(WmmaC& c, const WmmaA<T>& a, const WmmaB<T, by_rows>& b) {
  struct Operands {
    std::array<T, 8> a, b;
  };
  const auto all = emulated_block().exchange(Operands{a.x, b.x});
  const WmmaPlace at;
  for (unsigned i = 0; i < 8; ++i)
    for (unsigned k = 0; k < 16; ++k)
      c.x[i] += static_cast<float>(all[at.row * 2 + k / 8].a[k % 8]) *
                static_cast<float>(all[k * 2 + (at.column + i) / 8].b[(at.column + i) % 8]);
}
