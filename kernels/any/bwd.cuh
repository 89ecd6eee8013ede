// Kernel "any/bwd": the gradients of attention with every feature, every dtype, any head dim up to 512 and any strides,
// on any GPU from sm_80 on. Plain, but on the tensor cores for f16 and bf16.
//
// The scores are computed anew from q, k and the LSE of the forward pass, once for dk and dv and once for dq, so that
// every sum is one CTA's own: there are no atomics, and the order never changes. A call is some launches in a row, each
// of them a Part:
//
//   deltas   a warp per row: what dout.o, less dlse, takes from each of its gradients; with the LSE, in the workspace
//   sinks    a CTA per head: dsink
//   keys     a CTA per tile of keys: walks over the rows that see them, of every head of the group; dk and dv
//   rows     a CTA per tile of rows: walks over the keys that these see; dq
//   biases   a CTA per tile of dbias: walks over the batches, heads, rows and keys that the bias is broadcast over
//
// keys and rows are one function: a CTA keeps two tiles of its own in shared memory (k and v, or q and dout), and tiles
// of the other two come by cp.async, the next while one is worked on. A warp owns 16 rows or keys:
//
//   weights    exp(scale * own[0] other[0]^T - LSE), and their gradients from own[1] other[1]^T, in registers
//   sums       gradients other[0] are dk or dq, weights other[1] are dv; weights and gradients go from accumulator to
//              operand as they lie, rounded to the dtype
//
// Wide heads leave no registers for all channels of dk and dv: warps share the 16 keys then, each computes the scores
// and sums a slice of the channels.
//
// Barriers: __syncthreads only, one per tile with two stages, two with one. Shared memory: SharedStorage.
//
// What limits it: ldmatrix, one for each two products, and the registers of dk and dv, which leave 8 to 12 warps to a
// multiprocessor. f32 has no tensor cores and is limited by shared-memory reads.
#pragma once

#include "kernels/any/bwd_call.cuh"
#include "kernels/any/bwd_scores.cuh"

#ifdef ATTUNE_DEVICE
namespace attune::device::any_bwd {

ATTUNE_DEVICE void find_delta(const Params& params, Dtype dtype, int64_t index) {
  const Call& call = params.call;
  constexpr int warps = simple_threads / warp_size;
  const int lane = threadIdx.x % warp_size;
  const int64_t blocks = ceil_div<int64_t>(call.seq_q, warps), pair = index / blocks;
  const int64_t batch = pair / call.heads, head = pair % call.heads;
  const Scene scene(call, batch);
  const int row = static_cast<int>(index % blocks) * warps + static_cast<int>(threadIdx.x) / warp_size;
  if (row >= scene.seq_q) return;
  const auto at = [&](const Strides& strides) {
    return row_offset(call, strides, batch, scene.first_row_q + row, head);
  };
  RowStats stats{call.lse[at(call.lse_strides)], 0};
  if (stats.lse == -infinity()) {
    stats.lse = infinity();
  } else {
    const int64_t o = at(call.o_strides), dout = at(params.dout_strides);
    for (int d = lane; d < call.dim_v; d += warp_size)
      stats.delta = fma(load_element(params.dout, dtype, dout + d), load_element(call.o, dtype, o + d), stats.delta);
    stats.delta = warp_sum(stats.delta);
    if (call.features & feature_dlse) stats.delta -= params.dlse[at(params.dlse_strides)];
  }
  if (lane == 0) params.stats[stats_offset(params, scene, head, row)] = stats;
}

// What the head's sink takes from each row, in float64: the sum runs over all rows.
ATTUNE_DEVICE void sum_sink(const Params& params, int64_t head, double* sums) {
  const Call& call = params.call;
  const double logit = call.sink[head];
  double sum = 0;
  for (int64_t batch = 0; batch < call.batch; ++batch) {
    const Scene scene(call, batch);
    for (int row = static_cast<int>(threadIdx.x); row < scene.seq_q; row += simple_threads) {
      const RowStats stats = params.stats[stats_offset(params, scene, head, row)];
      if (stats.lse != infinity()) sum -= exp(logit - stats.lse) * stats.delta;
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int count = simple_threads / 2; count > 0; count /= 2) {
    if (static_cast<int>(threadIdx.x) < count) sums[threadIdx.x] += sums[threadIdx.x + count];
    __syncthreads();
  }
  if (threadIdx.x == 0) params.dsink[head] = static_cast<float>(sums[0]);
}

ATTUNE_DEVICE RowStats stats_of_row(const Params& params, const Scene& scene, int64_t head, int row) {
  if (row >= scene.seq_q) return {infinity(), 0};
  return params.stats[stats_offset(params, scene, head, row)];
}

// dk and dv of a tile of keys, or dq of a tile of rows.
template <Variant variant, Config config>
struct Gradients {
  using Storage = SharedStorage<variant, config>;
  static constexpr bool of_keys = variant.part == Part::keys;
  static constexpr Dtype dtype = variant.dtype;
  static constexpr int own_rows = Storage::own_rows, columns = config.columns, stages = config.stages;
  static constexpr int threads = threads_of(variant, config);
  static constexpr int width = variant.dim / slices_of(variant, config);  // channels of this warp

  const Params& params;
  const Call& call;
  const Scene& scene;
  Storage& shared;
  const int lane, own, channel;  // the warp's first row in shared.own, and its first channel
  const int64_t head;            // of the tile; the KV head for keys
  const int first;               // of its rows or keys
  Range others;                  // what the tile's rows or keys meet
  RowStats own_stats[2];         // of rows
  float sum[width / 8][4];       // dk or dq
  float sum_v[of_keys ? width / 8 : 1][4];

  ATTUNE_DEVICE Gradients(const Params& of_params, const Scene& of_scene, Storage& storage, int64_t of_head,
                          int of_first)
      : params(of_params),
        call(of_params.call),
        scene(of_scene),
        shared(storage),
        lane(threadIdx.x % warp_size),
        own(static_cast<int>(threadIdx.x) / warp_size % config.warps * rows_per_warp),
        channel(static_cast<int>(threadIdx.x) / warp_size / config.warps * width),
        head(of_head),
        first(of_first) {
    const Range tile{first, min_of(first + own_rows, of_keys ? scene.seq_k : scene.seq_q)};
    others = of_keys ? scene.rows_of(tile) : scene.keys_of(tile);
    ATTUNE_UNROLL
    for (int n = 0; n < width / 8; ++n) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) {
        sum[n][e] = 0;
        if (of_keys) sum_v[n][e] = 0;
      }
    }
  }

  ATTUNE_DEVICE void load_own() {
    const HeadPair pair = of_keys ? keys_of_head<dtype>(params, scene, head) : rows_of_head<dtype>(params, scene, head);
    const Range wanted = of_keys ? scene.seen_keys() : scene.seeing_rows();
    load_tile<dtype, variant.dim, own_rows, threads>(shared.own[0], pair.first, first, wanted);
    load_tile<dtype, variant.dim, own_rows, threads>(shared.own[1], pair.second, first, wanted);
    if (of_keys) return;
    ATTUNE_UNROLL
    for (int i = 0; i < 2; ++i) own_stats[i] = stats_of_row(params, scene, head, first + own + lane / 4 + 8 * i);
  }

  // Where the walk is: for keys it goes through the rows of every head of the group.
  struct Place {
    int64_t query_head;
    int begin;
  };
  ATTUNE_DEVICE Place start() const { return {of_keys ? head * call.group : head, others.begin}; }
  // False where it ends.
  ATTUNE_DEVICE bool advance(Place& place) const {
    place.begin += columns;
    if (place.begin < others.end) return true;
    place.begin = others.begin;
    ++place.query_head;
    return of_keys && place.query_head < (head + 1) * call.group;
  }

  ATTUNE_DEVICE void load(const Place& place, int stage) {
    const HeadPair pair = of_keys ? rows_of_head<dtype>(params, scene, place.query_head)
                                  : keys_of_head<dtype>(params, scene, head / call.group);
    load_tile<dtype, variant.dim, columns, threads>(shared.other[stage][0], pair.first, place.begin, others);
    load_tile<dtype, variant.dim, columns, threads>(shared.other[stage][1], pair.second, place.begin, others);
    cp_async_commit();
    if constexpr (variant.general)
      load_raised<variant, config>(call, scene, place.query_head, first, place.begin, shared.raised[stage]);
    if (of_keys && static_cast<int>(threadIdx.x) < columns)
      shared.stats[stage][threadIdx.x] =
          stats_of_row(params, scene, place.query_head, place.begin + static_cast<int>(threadIdx.x));
  }

  ATTUNE_DEVICE void add(const Place& place, int stage) {
    const int mine = first + own + lane / 4;
    const Range met[2] = {columns_of<of_keys>(scene, mine, place.begin),
                          columns_of<of_keys>(scene, mine + 8, place.begin)};
    Scores<variant, config> scores;
    scores.compute(call, shared, own, stage, met, [&](int e, int column) {
      if constexpr (of_keys)
        return shared.stats[stage][column];
      else
        return own_stats[e / 2];
    });
    if constexpr (of_keys)
      add_weighted_rows<dtype, width, columns, Storage::pitch>(sum_v, scores.weight,
                                                               &shared.other[stage][1][0][channel]);
    add_weighted_rows<dtype, width, columns, Storage::pitch>(sum, scores.gradient, &shared.other[stage][0][0][channel]);
  }

  ATTUNE_DEVICE void walk() {
    if (others.empty()) return;
    load_own();
    Place next = start();
    load(next, 0);
    int stage = 0;
    for (bool more = true; more;) {
      const Place now = next;
      more = advance(next);
      cp_async_wait<0>();
      __syncthreads();  // this tile is there, and all are done with the one before
      if (stages > 1 && more) load(next, (stage + 1) % stages);
      add(now, stage);
      if (stages == 1 && more) {
        __syncthreads();
        load(next, 0);
      }
      stage = (stage + 1) % stages;
    }
  }

  ATTUNE_DEVICE void store_sums(const float (&from)[width / 8][4], void* to, const Strides& strides, int dims,
                                float factor) const {
    const int stored = of_keys ? scene.stored_k : scene.stored_q;
    const int64_t first_row = of_keys ? scene.first_row_k : scene.first_row_q;
    ATTUNE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first + own + lane / 4 + 8 * i;
      if (row >= stored) continue;
      const int64_t at = row_offset(call, strides, scene.batch, first_row + row, head);
      ATTUNE_UNROLL
      for (int n = 0; n < width / 8; ++n) {
        ATTUNE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int d = channel + 8 * n + lane % 4 * 2 + e;
          if (d < dims) store_element(to, dtype, at + d, from[n][2 * i + e] * factor);
        }
      }
    }
  }

  ATTUNE_DEVICE void store() const {
    const auto scale = static_cast<float>(call.scale);
    if constexpr (of_keys) {
      store_sums(sum, params.dk, params.dk_strides, call.dim_qk, scale);
      store_sums(sum_v, params.dv, params.dv_strides, call.dim_v, 1);
    } else {
      store_sums(sum, params.dq, params.dq_strides, call.dim_qk, scale);
    }
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run_gradients(const Params& params, int64_t index, SharedStorage<variant, config>& shared) {
  constexpr bool of_keys = variant.part == Part::keys;
  constexpr int own_rows = config.warps * rows_per_warp;
  const Call& call = params.call;
  const int64_t heads = of_keys ? call.heads / call.group : call.heads;
  const int64_t tiles = ceil_div<int64_t>(of_keys ? call.seq_k : call.seq_q, own_rows), pair = index / tiles;
  const Scene scene(call, pair / heads);
  // Under a causal mask the first keys and the last rows have the longest walks, and begin first.
  const int first = static_cast<int>(of_keys ? index % tiles : tiles - 1 - index % tiles) * own_rows;
  if (first >= (of_keys ? scene.stored_k : scene.stored_q)) return;
  Gradients<variant, config> gradients(params, scene, shared, pair % heads, first);
  gradients.walk();
  gradients.store();
}

// A tile of dbias. Its sums, which may run over everything, are pairs of floats: what rounding took from the first is
// in the second.
template <Variant variant, Config config>
ATTUNE_DEVICE void run_bias(const Params& params, int64_t index, SharedStorage<variant, config>& shared) {
  constexpr int own_rows = config.warps * rows_per_warp, columns = config.columns;
  constexpr int threads = threads_of(variant, config);
  const Call& call = params.call;
  const int lane = threadIdx.x % warp_size, own = static_cast<int>(threadIdx.x) / warp_size * rows_per_warp;
  const BiasGrid grid = bias_grid(params, config);
  const int64_t key_block = index % grid.keys.blocks(), above_keys = index / grid.keys.blocks();
  const int64_t row_block = above_keys % grid.rows.blocks(), above_rows = above_keys / grid.rows.blocks();
  const int64_t head_block = above_rows % grid.heads.blocks(), batch_block = above_rows / grid.heads.blocks();
  float sum[columns / 8][4], rest[columns / 8][4];
  ATTUNE_UNROLL
  for (int n = 0; n < columns / 8; ++n) {
    ATTUNE_UNROLL
    for (int e = 0; e < 4; ++e) sum[n][e] = rest[n][e] = 0;
  }

  const auto add = [&](const Scene& scene, int64_t head, int row, int key) {
    const Range rows = common({row, row + own_rows}, scene.seeing_rows());
    const Range keys = common({key, key + columns}, scene.keys_of(rows));
    if (keys.empty()) return;
    __syncthreads();  // the tiles before have been read
    const HeadPair of_rows = rows_of_head<variant.dtype>(params, scene, head);
    const HeadPair of_keys = keys_of_head<variant.dtype>(params, scene, head / call.group);
    load_tile<variant.dtype, variant.dim, own_rows, threads>(shared.own[0], of_rows.first, row, rows);
    load_tile<variant.dtype, variant.dim, own_rows, threads>(shared.own[1], of_rows.second, row, rows);
    load_tile<variant.dtype, variant.dim, columns, threads>(shared.other[0][0], of_keys.first, key, keys);
    load_tile<variant.dtype, variant.dim, columns, threads>(shared.other[0][1], of_keys.second, key, keys);
    cp_async_commit();
    load_raised<variant, config>(call, scene, head, row, key, shared.raised[0]);
    const RowStats stats[2] = {stats_of_row(params, scene, head, row + own + lane / 4),
                               stats_of_row(params, scene, head, row + own + lane / 4 + 8)};
    cp_async_wait<0>();
    __syncthreads();
    Scores<variant, config> scores;
    const Range met[2] = {columns_of<false>(scene, row + own + lane / 4, key),
                          columns_of<false>(scene, row + own + lane / 4 + 8, key)};
    scores.compute(call, shared, own, 0, met, [&](int e, int) { return stats[e / 2]; });
    ATTUNE_UNROLL
    for (int n = 0; n < columns / 8; ++n) {
      ATTUNE_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float before = sum[n][e], more = scores.gradient[n][e], after = before + more, taken = after - before;
        rest[n][e] += (before - (after - taken)) + (more - taken);
        sum[n][e] = after;
      }
    }
  };
  for (int64_t batch = grid.batches.begin(batch_block); batch < grid.batches.end(batch_block); ++batch) {
    const Scene scene(call, batch);
    for (int64_t head = grid.heads.begin(head_block); head < grid.heads.end(head_block); ++head)
      for (int64_t row = grid.rows.begin(row_block); row < grid.rows.end(row_block); ++row)
        for (int64_t key = grid.keys.begin(key_block); key < grid.keys.end(key_block); ++key)
          add(scene, head, static_cast<int>(row) * own_rows, static_cast<int>(key) * columns);
  }

  // Through shared memory, so that those along a dimension that the bias broadcasts can be added up.
  static_assert(sizeof(shared.own) >= sizeof(double[own_rows][columns]));
  auto& sums = *reinterpret_cast<double(*)[own_rows][columns]>(&shared.own);
  __syncthreads();
  ATTUNE_UNROLL
  for (int n = 0; n < columns / 8; ++n) {
    ATTUNE_UNROLL
    for (int e = 0; e < 4; ++e)
      sums[own + lane / 4 + e / 2 * 8][8 * n + lane % 4 * 2 + e % 2] =
          static_cast<double>(sum[n][e]) + static_cast<double>(rest[n][e]);
  }
  __syncthreads();
  const int rows_to_add = grid.rows.summed ? own_rows : 1, keys_to_add = grid.keys.summed ? columns : 1;
  ATTUNE_ROLLED
  for (int i = threadIdx.x; i < own_rows * columns; i += threads) {
    const int row = i / columns, column = i % columns;
    const int64_t to_row = row_block * own_rows + row, to_key = key_block * columns + column;
    if (to_row >= (grid.rows.summed ? 1 : params.bias_rows) || to_key >= (grid.keys.summed ? 1 : params.bias_keys))
      continue;
    double total = 0;
    for (int r = 0; r < rows_to_add; ++r)
      for (int c = 0; c < keys_to_add; ++c) total += sums[row + r][column + c];
    store_element(params.dbias, call.bias_dtype,
                  score_offset(params.dbias_strides, batch_block, head_block, to_row, to_key),
                  static_cast<float>(total));
  }
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  auto& shared = *static_cast<SharedStorage<variant, config>*>(shared_memory());
  const int64_t blocks = blocks_of(variant.part, config, params);
  for (int64_t index = blockIdx.x; index < blocks; index += gridDim.x) {
    if constexpr (variant.part == Part::deltas)
      find_delta(params, variant.dtype, index);
    else if constexpr (variant.part == Part::sinks)
      sum_sink(params, index, shared.sums);
    else if constexpr (variant.part == Part::biases)
      run_bias<variant, config>(params, index, shared);
    else
      run_gradients<variant, config>(params, index, shared);
    __syncthreads();  // the next block writes to the same shared memory
  }
}

}  // namespace attune::device::any_bwd
#endif
