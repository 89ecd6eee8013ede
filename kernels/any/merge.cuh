// Kernel "any/merge": joins partial results over disjoint key sets (attune_merge). A warp per row, all of it in
// float64; the parts are read once, so memory is what limits it.
#pragma once

#include "kernels/any/simt.cuh"
#include "kernels/common/types.cuh"

namespace attune::device::any_merge {

constexpr int max_parts = 256;  // ATTUNE_MERGE_MAX_PARTS

struct Variant {
  int reserved = 0;
};

struct Config {
  int warps = 4;
};

struct Strides {
  int64_t batch, row, head;
};

struct Params {
  const void* part_o[max_parts];
  const float* part_lse[max_parts];
  void* o;
  float* lse;  // may be null
  Strides part_o_strides, part_lse_strides, o_strides, lse_strides;
  int64_t batch, heads, rows;
  int32_t parts, dim;
  Dtype part_dtype, dtype;
};

struct SharedStorage {
  double weight[4][max_parts];  // Config::warps
};

#ifdef ATTUNE_DEVICE

ATTUNE_DEVICE int64_t offset(const Strides& strides, int64_t batch, int64_t row, int64_t head) {
  return batch * strides.batch + row * strides.row + head * strides.head;
}

ATTUNE_DEVICE void merge_row(const Params& params, double* weight, int64_t batch, int64_t head, int64_t row) {
  const int lane = threadIdx.x % warp_size;
  const int64_t lse_at = offset(params.part_lse_strides, batch, row, head);
  double largest = -infinity();
  bool nan = false;
  for (int i = lane; i < params.parts; i += warp_size) {
    weight[i] = params.part_lse[i][lse_at];
    largest = fmax(largest, weight[i]);
    nan = nan || weight[i] != weight[i];
  }
  largest = warp_max(largest);
  const bool empty = largest == -infinity() && warp_max(nan ? 1.0f : 0.0f) == 0;
  double total = 0;
  for (int i = lane; i < params.parts; i += warp_size) {
    // The largest has weight 1 also where it is +inf, which exp(inf - inf) would not say.
    weight[i] = empty ? 0.0 : weight[i] == largest ? 1.0 : exp(weight[i] - largest);
    total += weight[i];
  }
  total = warp_sum(total);
  __syncwarp();  // every weight is there, and every lse has been read: the output may be one of the parts

  const int64_t part_at = offset(params.part_o_strides, batch, row, head);
  const int64_t o_at = offset(params.o_strides, batch, row, head);
  for (int d = lane; d < params.dim; d += warp_size) {
    double sum = 0;
    for (int i = 0; i < params.parts; ++i)
      if (weight[i] != 0)  // a part without weight may hold anything
        sum += weight[i] / total * static_cast<double>(load_element(params.part_o[i], params.part_dtype, part_at + d));
    store_element(params.o, params.dtype, o_at + d, static_cast<float>(sum));
  }
  if (lane == 0 && params.lse != nullptr)
    params.lse[offset(params.lse_strides, batch, row, head)] =
        static_cast<float>(empty ? -static_cast<double>(infinity()) : largest + log(total));
  __syncwarp();
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  auto& shared = *static_cast<SharedStorage*>(shared_memory());
  const int warp = threadIdx.x / warp_size;
  const int64_t count = params.batch * params.heads * params.rows;
  for (int64_t i = int64_t{blockIdx.x} * config.warps + warp; i < count; i += int64_t{gridDim.x} * config.warps)
    merge_row(params, shared.weight[warp], i / (params.heads * params.rows), i / params.rows % params.heads,
              i % params.rows);
}

#endif

}  // namespace attune::device::any_merge
