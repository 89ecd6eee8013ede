// Kernel "any/reference": attention by its definition, in float64, for every row: what the kernels are judged by on the
// GPU. Written to be checked by reading; judged in turn by the reference on the CPU.
//
// A warp computes one query row in two passes over the keys: the largest logit first, then the sums. A lane per key for
// the scores, a lane per 32nd dimension for the output. Keys and values come in tiles of 32, shared by the warps of the
// CTA as float, which holds every input exactly.
#pragma once

#include "kernels/any/call.cuh"

namespace attune::device::any_reference {

using namespace attune::device::any;

constexpr int keys_per_tile = 32;
constexpr int lane_dims = 32;

struct Variant {
  Dtype dtype = Dtype::f16;
  int dim_qk = 64, dim_v = 64;  // multiples of 32; the call's own dims may be smaller
};

struct Config {
  int warps = 8;  // and rows
};

// Results go, unrounded, to o and lse below if they are given: rows of all batch entries (or of the packed whole), head
// by head, (heads, rows, dim_v) and (heads, rows). Otherwise to o and lse of the call, rounded once.
struct Params {
  Call call;
  double* o;
  double* lse;
  int64_t blocks;
};

template <Variant variant, Config config>
struct SharedStorage {
  static constexpr int stride = max_of(variant.dim_qk, variant.dim_v) + 1;
  double q[config.warps][variant.dim_qk];
  double p[config.warps][keys_per_tile];
  float tile[keys_per_tile][stride];
};

ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int stride = max_of(variant.dim_qk, variant.dim_v) + 1;
  return 8 * config.warps * (variant.dim_qk + keys_per_tile) + 4 * keys_per_tile * stride;
}

#ifdef ATTUNE_DEVICE

template <Variant variant, Config config>
struct Row {
  using Storage = SharedStorage<variant, config>;

  const Call& call;
  Storage& shared;
  const Block& block;
  Sequence sequence;
  int64_t row;        // within its sequence; may lie past its end
  KeyRange keys;      // that this row sees
  KeyRange all_keys;  // that some row of the CTA sees

  // Rows of K or V from `first_key` on, by all threads.
  ATTUNE_DEVICE void load_tile(const void* from, const Strides& strides, int dims, int64_t first_key) {
    __syncthreads();
    for (int i = threadIdx.x; i < keys_per_tile * dims; i += blockDim.x) {
      const int64_t key = first_key + i / dims;
      if (key >= all_keys.end) continue;
      const int64_t at = row_offset(call, strides, block.batch, sequence.first_row_k + key, block.head / call.group);
      shared.tile[i / dims][i % dims] = load_element(from, variant.dtype, at + i % dims);
    }
    __syncthreads();
  }

  ATTUNE_DEVICE bool sees(int64_t key) const {
    return key >= keys.begin && key < keys.end && !masked(call, block.batch, block.head, row, key);
  }

  // The logit of this lane's key; -inf if the row does not see it.
  ATTUNE_DEVICE double logit(int64_t first_key) const {
    const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
    const int64_t key = first_key + lane;
    if (!sees(key)) return -infinity();
    double score = 0;
    for (int d = 0; d < call.dim_qk; ++d) score += shared.q[warp][d] * static_cast<double>(shared.tile[lane][d]);
    score *= call.scale;
    if (call.features & feature_softcap) score = call.softcap * tanh(score / call.softcap);
    if (call.features & feature_bias) score += bias_at(call, block.batch, block.head, row, key);
    return score;
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run_block(const Params& params, const Block& block, SharedStorage<variant, config>& shared) {
  constexpr int lane_values = variant.dim_v / lane_dims;
  const Call& call = params.call;
  const Sequence sequence = sequence_of(call, block.batch);
  if (block.first_row >= sequence.stored_q) return;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int64_t row = block.first_row + warp;
  const int64_t last_row = min_of(block.first_row + config.warps, sequence.seq_q) - 1;
  const KeyRange all_keys = {visible_keys(call, sequence, block.first_row).begin,
                             last_row < block.first_row ? 0 : visible_keys(call, sequence, last_row).end};
  Row<variant, config> me{call, shared, block, sequence, row, visible_keys(call, sequence, row), all_keys};

  __syncthreads();
  if (row < sequence.seq_q) {
    const int64_t at = row_offset(call, call.q_strides, block.batch, sequence.first_row_q + row, block.head);
    for (int d = lane; d < call.dim_qk; d += warp_size) shared.q[warp][d] = load_element(call.q, variant.dtype, at + d);
  }

  const bool has_sink = (call.features & feature_sink) && row < sequence.seq_q;
  const double sink = has_sink ? call.sink[block.head] : -infinity();
  double largest = sink;
  for (int64_t key = all_keys.begin; key < all_keys.end; key += keys_per_tile) {
    me.load_tile(call.k, call.k_strides, call.dim_qk, key);
    largest = fmax(largest, me.logit(key));
  }
  largest = warp_max(largest);

  double sum = 0;
  double o[lane_values] = {};
  for (int64_t key = all_keys.begin; key < all_keys.end; key += keys_per_tile) {
    me.load_tile(call.k, call.k_strides, call.dim_qk, key);
    const double x = me.logit(key);
    const double p = x == -infinity() ? 0.0 : exp(x - largest);
    sum += p;
    shared.p[warp][lane] = p;
    me.load_tile(call.v, call.v_strides, call.dim_v, key);
    for (int k = 0; k < keys_per_tile && key + k < all_keys.end; ++k) {
      if (!me.sees(key + k) || shared.p[warp][k] == 0) continue;  // what is not seen may be NaN
      ATTUNE_UNROLL
      for (int j = 0; j < lane_values; ++j)
        if (j * lane_dims + lane < call.dim_v)
          o[j] += shared.p[warp][k] * static_cast<double>(shared.tile[k][j * lane_dims + lane]);
    }
  }
  if (row >= sequence.stored_q) return;

  sum = warp_sum(sum);
  if (sink != -infinity()) sum += exp(sink - largest);
  const double lse = sum == 0 ? -static_cast<double>(infinity()) : largest + log(sum);
  const int64_t stored_row = sequence.first_row_q + row;
  ATTUNE_UNROLL
  for (int j = 0; j < lane_values; ++j) {
    const int d = j * lane_dims + lane;
    if (d >= call.dim_v) continue;
    const double value = sum == 0 ? 0.0 : o[j] / sum;
    if (params.o != nullptr) {
      const bool packed = call.features & feature_packed;
      const int64_t rows = packed ? call.total_q : call.batch * call.seq_q;
      const int64_t at = block.head * rows + (packed ? stored_row : block.batch * call.seq_q + row);
      params.o[at * call.dim_v + d] = value;
      if (d == 0) params.lse[at] = lse;
    } else {
      store_element(call.o, variant.dtype, row_offset(call, call.o_strides, block.batch, stored_row, block.head) + d,
                    static_cast<float>(value));
      if (d == 0 && (call.features & feature_lse))
        call.lse[row_offset(call, call.lse_strides, block.batch, stored_row, block.head)] = static_cast<float>(lse);
    }
  }
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  auto& shared = *static_cast<SharedStorage<variant, config>*>(shared_memory());
  for (int64_t index = blockIdx.x; index < params.blocks; index += gridDim.x)
    run_block<variant, config>(params, block_of(params.call, index, config.warps), shared);
}

#endif

}  // namespace attune::device::any_reference
