// Kernel "any/fwd": the forward pass with every feature, every dtype, any head dim up to 512, any strides, on any GPU
// from sm_80 on. The fallback that never says no: plain fp32 arithmetic (float64 for f32 inputs), no tensor cores.
//
// A CTA computes `rows` query rows of one head, a warp `rows_per_warp` of them. Keys come in tiles of 32:
//
//   scores     a lane per key: dot products of the lane's key with the warp's rows
//   softmax    online, over the lanes
//   P * V      a lane per 32nd dimension of the output
//
// Shared memory (SharedStorage): the rows of Q; one tile, which holds first K and then V; the probabilities. All as
// float, converted when loaded. K rows are 4 floats longer than they need to be, so that the 16-byte reads of 8 lanes
// fall into different banks.
//
// What limits it: shared-memory reads (one for each four multiply-adds) and the conversions on the way in.
#pragma once

#include "kernels/any/call.cuh"

namespace attune::device::any_fwd {

using namespace attune::device::any;

constexpr int keys_per_tile = 32;
constexpr int lane_dims = 32;  // output dimensions that a warp covers with one element per lane

struct Variant {
  Dtype dtype = Dtype::f16;
  int dim_qk = 64, dim_v = 64;  // multiples of 32; the call's own dims may be smaller
};

struct Config {
  int warps = 8;
  int rows_per_warp = 4;
};

struct Params {
  Call call;
  int64_t blocks;  // over all heads and batch entries
};

template <Dtype dtype>
struct RealOf {
  using Type = float;
};
// Sums over many keys in float would be less exact than the f32 output can show.
template <>
struct RealOf<Dtype::f32> {
  using Type = double;
};

template <Variant variant, Config config>
struct SharedStorage {
  static constexpr int rows = config.warps * config.rows_per_warp;
  static constexpr int k_stride = variant.dim_qk + 4;
  float q[rows][variant.dim_qk];
  float tile[keys_per_tile * max_of(k_stride, variant.dim_v)];
  using Real = typename RealOf<variant.dtype>::Type;
  alignas(16) Real p[rows][keys_per_tile];  // scores, then probabilities
  Real max[rows], sum[rows];                // of the logits so far
  Real factor[rows];                        // what the output so far is to be multiplied by
};

ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int rows = config.warps * config.rows_per_warp;
  const int tile = keys_per_tile * max_of(variant.dim_qk + 4, variant.dim_v);
  const int real_bytes = variant.dtype == Dtype::f32 ? 8 : 4;
  return 4 * rows * variant.dim_qk + 4 * tile + real_bytes * rows * (keys_per_tile + 3);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_bytes_per_block) {
  const int registers_of_o = config.rows_per_warp * (variant.dim_v / lane_dims) * (variant.dtype == Dtype::f32 ? 2 : 1);
  return registers_of_o <= 64 && shared_bytes(variant, config) <= shared_bytes_per_block;
}

#ifdef ATTUNE_DEVICE

// How a score becomes a logit. Without softcap and bias the logit stays in units of |scale|, so that a huge scale
// cannot overflow and differences lose nothing.
template <typename Real>
struct Logits {
  bool plain;
  Real sign, scale, cap;
  double unit;       // natural logits per unit of x
  Real exp2_factor;  // exp(a - b) = exp2((a - b) * exp2_factor)

  ATTUNE_DEVICE explicit Logits(const Call& call)
      : plain((call.features & (feature_softcap | feature_bias)) == 0),
        sign(call.scale < 0 ? -1 : 1),
        scale(static_cast<Real>(call.scale)),
        cap(static_cast<Real>(call.softcap)),
        unit(plain ? fabs(call.scale) : 1.0),
        exp2_factor(static_cast<Real>(fmin(unit * log2_e, 3.0e38))) {}

  ATTUNE_DEVICE Real operator()(const Call& call, Real score, const Block& block, int64_t row, int64_t key) const {
    if (plain) return sign * score;
    Real x = scale * score;
    if (call.features & feature_softcap) x = cap * tanh(x / cap);
    if (call.features & feature_bias) {
      // Two overflows must not meet as inf - inf in the softmax.
      const Real limit = 3.0e38f;
      x = fmin(fmax(x, -limit), limit) + bias_at(call, block.batch, block.head, row, key);
    }
    return x;
  }
};

constexpr int64_t nowhere = -0x7fffffffffffffff;  // the offset of a row that is not there

// Zero for rows and dims that are not there.
template <int dim, typename RowAt>
ATTUNE_DEVICE void load_rows(float* to, int stride, int rows, int dims, Dtype dtype, const void* from, RowAt row_at,
                             bool& not_finite) {
  for (int i = threadIdx.x; i < rows * dim; i += blockDim.x) {
    const int row = i / dim, d = i % dim;
    const int64_t offset = row_at(row);
    float value = 0;
    if (offset != nowhere && d < dims) value = load_element(from, dtype, offset + d);
    not_finite |= !(fabsf(value) < infinity());
    to[row * stride + d] = value;
  }
}

// guarded: a value of V may be NaN or infinite, and must then not reach rows that do not see its key.
template <bool guarded, int rows, int lane_values, typename Real>
ATTUNE_DEVICE void add_values(Real (&o)[rows][lane_values], const Real (*p)[keys_per_tile], const float* v) {
  const int lane = threadIdx.x % warp_size;
  for (int key = 0; key < keys_per_tile; ++key) {
    ATTUNE_UNROLL
    for (int j = 0; j < lane_values; ++j) {
      const Real value = v[(key * lane_values + j) * lane_dims + lane];
      ATTUNE_UNROLL
      for (int r = 0; r < rows; ++r)
        if (!guarded || p[r][key] != 0) o[r][j] = fma(p[r][key], value, o[r][j]);
    }
  }
}

// One block of query rows. All threads of the CTA come here together.
template <Variant variant, Config config>
struct Rows {
  using Storage = SharedStorage<variant, config>;
  using Real = typename RealOf<variant.dtype>::Type;
  static constexpr int rows = config.rows_per_warp, lane_values = variant.dim_v / lane_dims;

  const Call& call;
  const Block& block;
  const Sequence sequence;
  const Logits<Real> logits;
  Storage& shared;
  const int lane;
  const int slot;           // of the warp's first row in `shared`
  const int64_t first_row;  // of the warp
  Real o[rows][lane_values];

  ATTUNE_DEVICE Rows(const Call& of_call, const Block& of_block, const Sequence& of_sequence, Storage& storage)
      : call(of_call),
        block(of_block),
        sequence(of_sequence),
        logits(of_call),
        shared(storage),
        lane(threadIdx.x % warp_size),
        slot(threadIdx.x / warp_size * rows),
        first_row(of_block.first_row + slot) {
    ATTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      shared.max[slot + r] = -infinity();
      shared.sum[slot + r] = 0;
      ATTUNE_UNROLL
      for (int j = 0; j < lane_values; ++j) o[r][j] = 0;
    }
  }

  ATTUNE_DEVICE void load_queries() {
    bool ignored = false;
    load_rows<variant.dim_qk>(
        &shared.q[0][0], variant.dim_qk, Storage::rows, call.dim_qk, variant.dtype, call.q,
        [&](int r) -> int64_t {
          const int64_t row = block.first_row + r;
          if (row >= sequence.seq_q) return nowhere;
          return row_offset(call, call.q_strides, block.batch, sequence.first_row_q + row, block.head);
        },
        ignored);
  }

  // A tile of K or V; true if a value of it is not finite.
  template <int dim>
  ATTUNE_DEVICE bool load_tile(int stride, int dims, const void* from, const Strides& strides, int64_t first_key,
                               int64_t end) {
    bool not_finite = false;
    load_rows<dim>(
        shared.tile, stride, keys_per_tile, dims, variant.dtype, from,
        [&](int k) -> int64_t {
          if (first_key + k >= end) return nowhere;
          return row_offset(call, strides, block.batch, sequence.first_row_k + first_key + k, block.head / call.group);
        },
        not_finite);
    return not_finite;
  }

  // The products of this lane's key with the warp's rows, to shared.p.
  ATTUNE_DEVICE void compute_scores() {
    Real score[rows] = {};
    for (int d = 0; d < variant.dim_qk; d += 4) {
      const Float4 k = *reinterpret_cast<const Float4*>(&shared.tile[lane * Storage::k_stride + d]);
      ATTUNE_UNROLL
      for (int r = 0; r < rows; ++r) {
        const Float4 q = *reinterpret_cast<const Float4*>(&shared.q[slot + r][d]);
        score[r] = fma(static_cast<Real>(q.x), static_cast<Real>(k.x), score[r]);
        score[r] = fma(static_cast<Real>(q.y), static_cast<Real>(k.y), score[r]);
        score[r] = fma(static_cast<Real>(q.z), static_cast<Real>(k.z), score[r]);
        score[r] = fma(static_cast<Real>(q.w), static_cast<Real>(k.w), score[r]);
      }
    }
    ATTUNE_UNROLL
    for (int r = 0; r < rows; ++r) shared.p[slot + r][lane] = score[r];
  }

  // Scores to probabilities, in shared.p; the output so far is brought to the new maximum.
  ATTUNE_DEVICE void update_softmax(int64_t key) {
    ATTUNE_ROLLED
    for (int r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      const KeyRange keys = visible_keys(call, sequence, row);
      bool seen = key >= keys.begin && key < keys.end && !masked(call, block.batch, block.head, row, key);
      const Real x = seen ? logits(call, shared.p[slot + r][lane], block, row, key) : -infinity();
      seen = seen && x != -infinity();  // a bias of -inf hides the key, too
      const Real old_max = shared.max[slot + r];
      const Real max = fmax(old_max, warp_max(seen ? x : -infinity()));
      const Real p = seen ? exp2((x - max) * logits.exp2_factor) : Real(0);
      const Real sum = warp_sum(p);
      shared.p[slot + r][lane] = p;
      __syncwarp();
      if (lane == 0) {
        Real factor = 1;
        if (max != old_max) factor = old_max == -infinity() ? Real(0) : exp2((old_max - max) * logits.exp2_factor);
        shared.max[slot + r] = max;
        shared.sum[slot + r] = shared.sum[slot + r] * factor + sum;
        shared.factor[slot + r] = factor;
      }
    }
    __syncwarp();
    ATTUNE_UNROLL
    for (int r = 0; r < rows; ++r) scale_output(r);
  }

  ATTUNE_DEVICE void scale_output(int r) {
    const Real factor = shared.factor[slot + r];
    ATTUNE_UNROLL
    for (int j = 0; j < lane_values; ++j) o[r][j] *= factor;
  }

  // Joins the sink, which is a key without a value, and leaves what the output must be multiplied by in shared.factor.
  ATTUNE_DEVICE void finish_softmax() {
    const double nothing = -static_cast<double>(infinity());
    ATTUNE_ROLLED
    for (int r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      if (row >= sequence.stored_q || lane != 0) continue;
      const bool empty = shared.max[slot + r] == -infinity() && shared.sum[slot + r] == 0;
      const bool has_sink = (call.features & feature_sink) && row < sequence.seq_q;
      // In float64, since logits in natural units may be huge.
      const double max = empty ? nothing : static_cast<double>(shared.max[slot + r]) * logits.unit;
      const double sink = has_sink ? static_cast<double>(call.sink[block.head]) : nothing;
      const double largest = fmax(max, sink);
      const double weight = empty ? 0.0 : max == largest ? 1.0 : exp(max - largest);
      const double sink_weight = sink == nothing ? 0.0 : sink == largest ? 1.0 : exp(sink - largest);
      const double total = weight * static_cast<double>(shared.sum[slot + r]) + sink_weight;
      shared.factor[slot + r] = empty ? Real(0) : static_cast<Real>(weight / total);
      if (call.features & feature_lse)
        call.lse[row_offset(call, call.lse_strides, block.batch, sequence.first_row_q + row, block.head)] =
            total == 0 ? -infinity() : static_cast<float>(largest + log(total));
    }
    __syncwarp();
  }

  ATTUNE_DEVICE void store_output() {
    ATTUNE_UNROLL
    for (int r = 0; r < rows; ++r) {
      const int64_t row = first_row + r;
      if (row >= sequence.stored_q) continue;
      scale_output(r);
      const int64_t at = row_offset(call, call.o_strides, block.batch, sequence.first_row_q + row, block.head);
      ATTUNE_UNROLL
      for (int j = 0; j < lane_values; ++j) {
        const int d = j * lane_dims + lane;
        if (d < call.dim_v) store_element(call.o, variant.dtype, at + d, static_cast<float>(o[r][j]));
      }
    }
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run_block(const Call& call, const Block& block, SharedStorage<variant, config>& shared) {
  using Storage = SharedStorage<variant, config>;
  const Sequence sequence = sequence_of(call, block.batch);
  if (block.first_row >= sequence.stored_q) return;
  Rows<variant, config> rows(call, block, sequence, shared);
  rows.load_queries();

  const int64_t last_row = min_of(block.first_row + Storage::rows, sequence.seq_q) - 1;
  const int64_t begin = visible_keys(call, sequence, block.first_row).begin;
  const int64_t end = last_row < block.first_row ? 0 : visible_keys(call, sequence, last_row).end;
  for (int64_t first_key = begin; first_key < end; first_key += keys_per_tile) {
    __syncthreads();  // the values before have been read
    rows.template load_tile<variant.dim_qk>(Storage::k_stride, call.dim_qk, call.k, call.k_strides, first_key, end);
    __syncthreads();
    rows.compute_scores();
    rows.update_softmax(first_key + rows.lane);
    __syncthreads();  // the keys have been read
    const bool not_finite =
        rows.template load_tile<variant.dim_v>(variant.dim_v, call.dim_v, call.v, call.v_strides, first_key, end);
    if (__syncthreads_or(not_finite))
      add_values<true>(rows.o, &shared.p[rows.slot], shared.tile);
    else
      add_values<false>(rows.o, &shared.p[rows.slot], shared.tile);
  }
  __syncwarp();
  rows.finish_softmax();
  rows.store_output();
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  auto& shared = *static_cast<SharedStorage<variant, config>*>(shared_memory());
  for (int64_t index = blockIdx.x; index < params.blocks; index += gridDim.x)
    run_block<variant, config>(params.call, block_of(params.call, index, SharedStorage<variant, config>::rows), shared);
}

#endif

}  // namespace attune::device::any_fwd
