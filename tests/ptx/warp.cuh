// Test kernels of one warp: an instruction's operands come from memory and its results go back there, as they lie in
// registers or shared memory.
#pragma once

#include "kernels/common/convert.cuh"
#include "kernels/common/cp_async.cuh"
#include "kernels/common/divisor.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/shared_atomics.cuh"

namespace attune::device::test_warp {

enum class Operation : int32_t {
  ldmatrix,
  ldmatrix_trans,
  stmatrix,
  stmatrix_trans,
  mma_f16,
  mma_bf16,
  quad_transpose,
  quad_reduce,
  pack,
  to_float,
  shared_add,
  approximations,
  elect,
  divide,
  cp_async,
  cp_async_barrier,
};

struct Variant {};
struct Config {};

struct Params {
  Operation operation;
  int32_t count;
  const uint32_t* in;
  uint32_t* out;
};

// Where row r of the matrices lies among the rows in shared memory: anywhere, as each lane gives its own address.
ATTUNE_SHARED_CODE int place_of_row(int r) { return r * 5 % 32; }

#ifdef __CUDACC_RTC__

constexpr int matrix_words = 128;  // four 8 x 8 matrices of 16-bit elements, a row is four words

ATTUNE_DEVICE void load_matrices(const Params& params, uint32_t* shared, int lane, bool trans) {
  for (int i = 0; i < 4; ++i) shared[place_of_row(lane) * 4 + i] = params.in[lane * 4 + i];
  __syncwarp();
  uint32_t x[4];
  if (trans)
    ldmatrix_x4_trans(x, &shared[place_of_row(lane) * 4]);
  else
    ldmatrix_x4(x, &shared[place_of_row(lane) * 4]);
  for (int i = 0; i < 4; ++i) params.out[lane * 4 + i] = x[i];
}

ATTUNE_DEVICE void store_matrices(const Params& params, uint32_t* shared, int lane, bool trans) {
  const uint32_t* x = params.in + lane * 4;
  if (trans)
    stmatrix_x4_trans(&shared[place_of_row(lane) * 4], x[0], x[1], x[2], x[3]);
  else
    stmatrix_x4(&shared[place_of_row(lane) * 4], x[0], x[1], x[2], x[3]);
  __syncwarp();
  for (int i = lane; i < matrix_words; i += 32) params.out[i] = shared[i];
}

// in: A (16 x 16) by rows, B (16 x 8) by columns, both 16-bit, then C (16 x 8), float32, by rows. out: D by rows.
template <Dtype dtype>
ATTUNE_DEVICE void multiply(const Params& params, int lane) {
  const uint32_t* a_words = params.in;
  const uint32_t* b_words = a_words + 16 * 16 / 2;
  const uint32_t* c_words = b_words + 16 * 8 / 2;
  const int group = lane / 4, quad = lane % 4;
  const uint32_t a[4] = {a_words[group * 8 + quad], a_words[(group + 8) * 8 + quad], a_words[group * 8 + quad + 4],
                         a_words[(group + 8) * 8 + quad + 4]};
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = __uint_as_float(c_words[(group + i / 2 * 8) * 8 + quad * 2 + i % 2]);
  mma_16x8x16<dtype>(d, a, b_words[group * 8 + quad], b_words[group * 8 + quad + 4]);
  for (int i = 0; i < 4; ++i) params.out[(group + i / 2 * 8) * 8 + quad * 2 + i % 2] = __float_as_uint(d[i]);
}

// Two groups of copies: of row i of the first, i % 17 bytes arrive; the second comes whole. in and out: 2 x 32 rows.
ATTUNE_DEVICE void copy_groups(const Params& params, uint32_t* shared, int lane) {
  for (int i = 0; i < 8; ++i) shared[lane * 8 + i] = 0xffffffffu;
  __syncwarp();
  cp_async_16(&shared[lane * 4], &params.in[lane * 4], lane % 17);
  cp_async_commit();
  cp_async_16(&shared[(32 + lane) * 4], &params.in[(32 + lane) * 4]);
  cp_async_commit();
  cp_async_wait<1>();
  __syncwarp();
  for (int i = lane; i < 128; i += 32) params.out[i] = shared[i];
  cp_async_wait<0>();
  __syncwarp();
  for (int i = 128 + lane; i < 256; i += 32) params.out[i] = shared[i];
}

// Each lane copies a row, and all wait on one barrier before they read each other's.
ATTUNE_DEVICE void copy_and_arrive(const Params& params, uint32_t* shared, Mbarrier& barrier, int lane) {
  if (lane == 0) barrier.init(32);
  __syncwarp();
  cp_async_16(&shared[lane * 4], &params.in[lane * 4]);
  cp_async_arrive(barrier);
  barrier.wait(0, "copied");
  for (int i = 0; i < 4; ++i) params.out[lane * 4 + i] = shared[(lane + 1) % 32 * 4 + i];
}

// Each lane adds a number of its own to two counters, one of 32 and one of 64 bits: what it found, then the sums.
ATTUNE_DEVICE void add_in_shared(const Params& params, uint32_t* shared, int lane) {
  auto* narrow = reinterpret_cast<int32_t*>(shared);
  auto* wide = reinterpret_cast<uint64_t*>(shared + 2);
  if (lane == 0) *narrow = 0, *wide = 0;
  __syncwarp();
  params.out[lane] = static_cast<uint32_t>(shared_add(narrow, static_cast<int32_t>(params.in[lane])));
  params.out[32 + lane] = static_cast<uint32_t>(shared_add(wide, uint64_t{params.in[lane]} << 32) >> 32);
  __syncwarp();
  if (lane == 0) params.out[64] = static_cast<uint32_t>(*narrow), params.out[65] = static_cast<uint32_t>(*wide >> 32);
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  __shared__ alignas(128) uint32_t shared[256];
  __shared__ Mbarrier barrier;
  const int lane = threadIdx.x;
  switch (params.operation) {
    case Operation::ldmatrix:
      return load_matrices(params, shared, lane, false);
    case Operation::ldmatrix_trans:
      return load_matrices(params, shared, lane, true);
    case Operation::stmatrix:
      return store_matrices(params, shared, lane, false);
    case Operation::stmatrix_trans:
      return store_matrices(params, shared, lane, true);
    case Operation::mma_f16:
      return multiply<Dtype::f16>(params, lane);
    case Operation::mma_bf16:
      return multiply<Dtype::bf16>(params, lane);
    case Operation::quad_transpose: {
      uint32_t x[4];
      for (int i = 0; i < 4; ++i) x[i] = params.in[lane * 4 + i];
      quad_transpose(x, lane);
      return store_16_bytes(params.out + lane * 4, x);
    }
    case Operation::quad_reduce: {
      const float x = __uint_as_float(params.in[lane]);
      params.out[lane] = __float_as_uint(quad_max(x));
      params.out[32 + lane] = __float_as_uint(quad_sum(x));
      return;
    }
    case Operation::pack:
      for (int i = lane; i < params.count; i += 32) {
        const float low = __uint_as_float(params.in[2 * i]), high = __uint_as_float(params.in[2 * i + 1]);
        store_8_bytes(params.out + 2 * i, pack<Dtype::f16>(low, high), pack<Dtype::bf16>(low, high));
      }
      return;
    case Operation::to_float:
      for (int i = lane; i < params.count; i += 32) {
        const auto bits = static_cast<uint16_t>(params.in[i]);
        params.out[2 * i] = __float_as_uint(to_float<Dtype::f16>(bits));
        params.out[2 * i + 1] = __float_as_uint(to_float<Dtype::bf16>(bits));
      }
      return;
    case Operation::shared_add:
      return add_in_shared(params, shared, lane);
    case Operation::approximations:
      for (int i = lane; i < params.count; i += 32) {
        const float x = __uint_as_float(params.in[2 * i]), y = __uint_as_float(params.in[2 * i + 1]);
        params.out[3 * i] = __float_as_uint(exp2_approx(x));
        params.out[3 * i + 1] = __float_as_uint(log2_approx(y));
        params.out[3 * i + 2] = __float_as_uint(reciprocal_approx(y));
      }
      return;
    case Operation::elect:
      params.out[lane] = elect_one();
      return;
    case Operation::divide:
      for (int i = lane; i < params.count; i += 32) {
        const uint32_t* in = params.in + 4 * i;
        params.out[i] = divide(static_cast<int>(in[0]), Divisor{in[1], in[2], in[3]});
      }
      return;
    case Operation::cp_async:
      return copy_groups(params, shared, lane);
    case Operation::cp_async_barrier:
      return copy_and_arrive(params, shared, barrier, lane);
  }
}

#endif

}  // namespace attune::device::test_warp
