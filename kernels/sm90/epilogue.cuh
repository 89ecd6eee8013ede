// The end of a row: its sum and log-sum-exp, and O from registers to memory.
#pragma once

#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/parameters.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

ATTUNE_DEVICE uint16_t* output_row(const Call& call, int batch, int head, int row) {
  return static_cast<uint16_t*>(call.o) + batch * call.o_batch_stride + head * call.o_head_stride +
         row * call.o_row_stride;
}

// The end of a row, from its maximum and the sum of its exponentials relative to that: stores the LSE, and returns what
// O is multiplied by. That is 0 for a row that saw no key. The sink is a key without a value.
ATTUNE_DEVICE float finish_row(const Call& call, int batch, int head, int row, float max, float sum, bool stores_lse) {
  float top = max * call.scale_log2, total = sum, weight = 1;
  if (call.sink != nullptr) {
    constexpr float log2_e = 1.44269504088896f, lowest = -3.0e38f;
    const float sink = call.sink[head] * log2_e, own = top;
    top = fmaxf(fmaxf(own, sink), lowest);
    weight = exp2_approx(own - top);
    total = sum * weight + exp2_approx(sink - top);
  }
  if (stores_lse && call.lse != nullptr) {
    constexpr float ln2 = 0.693147180559945f;
    call.lse[batch * call.lse_batch_stride + head * call.lse_head_stride + row * call.lse_row_stride] =
        total == 0.f ? minus_infinity : (top + log2_approx(total)) * ln2;
  }
  return sum == 0.f ? 0.f : weight * reciprocal_approx(total);
}

// Two neighbouring columns of O. A row that saw no key has zeros, whatever V holds.
template <Dtype dtype>
ATTUNE_DEVICE uint32_t normalised_pair(float x, float y, float inverse) {
  return inverse == 0.f ? 0 : pack<dtype>(x * inverse, y * inverse);
}

// Of four units of eight columns, a thread holds two neighbouring columns each: `pairs`. The four lanes that share a
// row exchange them, so that each stores 16 contiguous bytes. `out`: where this lane's unit begins.
ATTUNE_DEVICE void store_four_units(uint16_t* out, uint32_t (&pairs)[4], bool inside, int lane) {
  quad_transpose(pairs, lane);
  if (inside) store_16_bytes(out, pairs);
}

// O of a thread's two rows, `first_row` and the eighth after it, straight from wgmma's registers.
template <Dtype dtype, int count>
ATTUNE_DEVICE void store_rows(const Call& call, int batch, int head, int first_row, const float (&o)[count],
                              const float (&inverse)[2], int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + 8 * i;
    uint16_t* out = output_row(call, batch, head, row) + lane % 4 * 8;
#pragma unroll
    for (int c = 0; c < count / 16; ++c) {
      uint32_t pairs[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &o[16 * c + 4 * j + 2 * i];
        pairs[j] = normalised_pair<dtype>(pair[0], pair[1], inverse[i]);
      }
      store_four_units(out + 32 * c, pairs, row < call.seq_q, lane);
    }
  }
}

}  // namespace attune::device::sm90
#endif
