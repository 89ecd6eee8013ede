// What the tiled parts of kernel "any/bwd" share: which rows and keys belong together, tiles on their way into shared
// memory, and the weights and gradients of the scores of 16 rows or keys by a tile of the others.
#pragma once

#include "kernels/any/bwd_call.cuh"
#include "kernels/attention/key_range.cuh"
#include "kernels/common/cp_async.cuh"

#ifdef ATTUNE_DEVICE
namespace attune::device::any_bwd {

// Rows and keys are counted in int: 64 bits would take registers that dk and dv need. The host refuses longer
// sequences.
struct Range {
  int begin, end;
  ATTUNE_DEVICE bool empty() const { return end <= begin; }
  ATTUNE_DEVICE bool has(int i) const { return i >= begin && i < end; }
};

// A sequence with what it shows: which rows see which keys, but for masks.
struct Scene {
  int64_t batch, first_row_q, first_row_k;
  int seq_q, seq_k;        // in use
  int stored_q, stored_k;  // that exist
  Band<int> band;

  ATTUNE_DEVICE Scene(const Call& call, int64_t of_batch) : batch(of_batch), band() {
    const Sequence sequence = sequence_of(call, batch);
    int64_t keys = call.seq_k;
    if (call.features & feature_packed) {
      const int64_t end_k = clamped(call.cu_seqlens_k[batch + 1], 0, call.total_k);
      keys = clamped(end_k - sequence.first_row_k, 0, call.seq_k);
    }
    first_row_q = sequence.first_row_q;
    first_row_k = sequence.first_row_k;
    seq_q = static_cast<int>(sequence.seq_q);
    seq_k = static_cast<int>(sequence.seq_k);
    stored_q = static_cast<int>(sequence.stored_q);
    stored_k = static_cast<int>(keys);
    band = band_of<int>({static_cast<Alignment>(call.causal), call.window_left, call.window_right}, seq_q, seq_k);
  }

  // What these rows, or these keys, meet: one range, since the next row's keys begin and end at most one further.
  ATTUNE_DEVICE Range keys_of(const Range& rows) const {
    if (rows.empty()) return {0, 0};
    return {band.begin(rows.begin), band.end(rows.end - 1)};
  }
  ATTUNE_DEVICE Range rows_of(const Range& keys) const {
    if (keys.empty()) return {0, 0};
    return {max_of(0, keys.begin - band.upper + 1), min_of(seq_q, keys.end - band.lower)};
  }
  // Rows and keys that meet any. No others are read: they may hold anything.
  ATTUNE_DEVICE Range seen_keys() const { return keys_of({0, seq_q}); }
  ATTUNE_DEVICE Range seeing_rows() const { return rows_of({0, seq_k}); }
};

ATTUNE_DEVICE Range common(const Range& a, const Range& b) { return {max_of(a.begin, b.begin), min_of(a.end, b.end)}; }

ATTUNE_DEVICE int64_t stats_offset(const Params& params, const Scene& scene, int64_t head, int row) {
  const Call& call = params.call;
  const int64_t first = call.features & feature_packed ? scene.first_row_q : scene.batch * call.seq_q;
  return head * params.stat_rows + first + row;
}

// The rows of one head of one sequence in a tensor.
struct HeadRows {
  const void* first;  // element 0 of row 0
  int64_t pitch;      // in elements
  int dims;
};

ATTUNE_DEVICE HeadRows head_rows(const Call& call, Dtype dtype, const void* data, const Strides& strides,
                                 const Scene& scene, int64_t first_row, int64_t head, int dims) {
  const int64_t offset = row_offset(call, strides, scene.batch, first_row, head);
  return {static_cast<const uint8_t*>(data) + offset * bytes_of(dtype), strides.row, dims};
}

struct HeadPair {
  HeadRows first, second;
};

template <Dtype dtype>
ATTUNE_DEVICE HeadPair rows_of_head(const Params& params, const Scene& scene, int64_t head) {
  const Call& call = params.call;
  const int64_t row = scene.first_row_q;
  return {head_rows(call, dtype, call.q, call.q_strides, scene, row, head, call.dim_qk),
          head_rows(call, dtype, params.dout, params.dout_strides, scene, row, head, call.dim_v)};
}

template <Dtype dtype>
ATTUNE_DEVICE HeadPair keys_of_head(const Params& params, const Scene& scene, int64_t head_kv) {
  const Call& call = params.call;
  const int64_t row = scene.first_row_k;
  return {head_rows(call, dtype, call.k, call.k_strides, scene, row, head_kv, call.dim_qk),
          head_rows(call, dtype, call.v, call.v_strides, scene, row, head_kv, call.dim_v)};
}

// Starts the copy of rows begin .. begin + rows - 1, as far as they are in `wanted`; zeros elsewhere. It is there after
// cp_async_wait and a barrier.
template <Dtype dtype, int dim, int rows, int threads, typename Element, int pitch>
ATTUNE_DEVICE void load_tile(Element (*to)[pitch], const HeadRows& from, int begin, const Range& wanted) {
  constexpr int per_copy = 16 / static_cast<int>(sizeof(Element)), copies = dim / per_copy;
  const bool aligned =
      (reinterpret_cast<uint64_t>(from.first) | static_cast<uint64_t>(from.pitch) * sizeof(Element)) % 16 == 0;
  const Element* const first = static_cast<const Element*>(from.first);
  const Element* const tile = first + begin * from.pitch;
  const Range there{wanted.begin - begin, wanted.end - begin};
  ATTUNE_ROLLED
  for (int i = threadIdx.x; i < rows * copies; i += threads) {
    const int row = i / copies, d = i % copies * per_copy;
    const int count = there.has(row) ? min_of(max_of(from.dims - d, 0), per_copy) : 0;
    const Element* const source = count > 0 ? tile + row * from.pitch + d : first;
    if (aligned) {
      cp_async_16(&to[row][d], source, count * static_cast<int>(sizeof(Element)));
    } else {
      ATTUNE_ROLLED
      for (int e = 0; e < per_copy; ++e) to[row][d + e] = e < count ? source[e] : Element(0);
    }
  }
}

// Of a key, the rows that see it; of a row, the keys that it sees; counted from first_column.
template <bool of_key>
ATTUNE_DEVICE Range columns_of(const Scene& scene, int own, int first_column) {
  if (own >= (of_key ? scene.seq_k : scene.seq_q)) return {0, 0};
  const Range met = of_key ? scene.rows_of({own, own + 1}) : scene.keys_of({own, own + 1});
  return {met.begin - first_column, met.end - first_column};
}

// The biases of a tile's scores, or -inf where the mask hides the key. `own` and `other` are its first rows or keys.
template <Variant variant, Config config>
ATTUNE_DEVICE void load_raised(const Call& call, const Scene& scene, int64_t head, int own, int other,
                               float (*to)[config.columns]) {
  constexpr bool own_keys = variant.part == Part::keys;
  if ((call.features & (feature_bias | feature_mask)) == 0) return;
  ATTUNE_ROLLED
  for (int i = threadIdx.x; i < config.warps * rows_per_warp * config.columns; i += threads_of(variant, config)) {
    const int mine = i / config.columns, column = i % config.columns;
    const int row = own_keys ? other + column : own + mine, key = own_keys ? own + mine : other + column;
    float raised = 0;
    if (row < scene.seq_q && key < scene.seq_k) {
      if (masked(call, scene.batch, head, row, key))
        raised = -infinity();
      else if (call.features & feature_bias)
        raised = bias_at(call, scene.batch, head, row, key);
    }
    to[mine][column] = raised;
  }
}

// Weights of the scores of a warp's 16 rows or keys by a tile of the others, and the gradients of q.k but for the
// scale, or for Part::biases of what the bias was added to. Both 0 where the row does not see the key.
template <Variant variant, Config config>
struct Scores {
  static constexpr int groups = config.columns / 8;
  using Storage = SharedStorage<variant, config>;
  float weight[groups][4], gradient[groups][4];

  // `own`: the warp's first row in shared.own; met: the columns of its two rows; stats_of(e, column): those of the row
  // that an element belongs to.
  template <typename StatsOf>
  ATTUNE_DEVICE void compute(const Call& call, const Storage& shared, int own, int stage, const Range (&met)[2],
                             StatsOf stats_of) {
    ATTUNE_UNROLL
    for (int n = 0; n < groups; ++n) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) weight[n][e] = gradient[n][e] = 0;
    }
    add_dot_products<variant.dtype, config.columns, variant.dim, Storage::pitch>(weight, shared.own[0][own],
                                                                                 shared.other[stage][0][0]);
    add_dot_products<variant.dtype, config.columns, variant.dim, Storage::pitch>(gradient, shared.own[1][own],
                                                                                 shared.other[stage][1][0]);
    const int lane = threadIdx.x % warp_size;
    const auto scale = static_cast<float>(call.scale), cap = static_cast<float>(call.softcap);
    const bool raises = variant.general && (call.features & (feature_bias | feature_mask));
    ATTUNE_UNROLL
    for (int n = 0; n < groups; ++n) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const int mine = own + lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
        bool seen = met[e / 2].has(column);
        float logit = scale * weight[n][e], slope = 1;
        if (variant.general && (call.features & feature_softcap)) {
          const float capped = tanh(logit / cap);
          logit = cap * capped;
          slope = 1 - capped * capped;
        }
        if (raises) {
          const float raised = shared.raised[stage][mine][column];
          logit += raised;
          seen = seen && raised != -infinity();
        }
        const RowStats stats = stats_of(e, column);
        weight[n][e] = seen ? exp(logit - stats.lse) : 0.0f;
        gradient[n][e] = seen ? weight[n][e] * (gradient[n][e] - stats.delta) : 0.0f;
        if (variant.part != Part::biases) gradient[n][e] *= slope;
      }
    }
  }
};

}  // namespace attune::device::any_bwd
#endif
