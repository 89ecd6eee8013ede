// The three-step form of one tile: scores to memory, softmax in memory, values from memory. Built from the block path's
// parts, and, like the library calls it stands for, it computes the whole rectangle and masks it afterwards.
#pragma once

#include "cpu/level/block.inl.hpp"
#include "cpu/level/level.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Every vector of rows sees all keys.
template <int Vecs>
struct SameEnds {
  int64_t ends[Vecs];
  explicit SameEnds(int64_t keys) {
    for (int64_t& end : ends) end = keys;
  }
};

template <int Vecs>
void unfused_scores_as(const Call& call, const Block& block, int64_t seq_k, const UnfusedTile& state, void* memory) {
  Arena arena(memory);
  Scratch<float> scratch(*call.problem, arena);
  Tile<float>& tile = scratch.tiles[0];
  begin_tile(call, block, 0, block.count, tile);
  constexpr int rows = Vecs * width;
  for (int64_t from = 0; from < seq_k; from += chunk_keys) {
    const int64_t keys = smaller_of(chunk_keys, seq_k - from);
    const float* steps = steps_of(call, block, scratch, from, from + keys);
    score_steps<Vecs>(steps, scratch.layout, 0, SameEnds<Vecs>(keys).ends, tile.q, call.problem->dim_qk, scratch.x,
                      [] {});
    shape_scores(call, block, tile, from, keys, scratch.x, scratch.bias);
    hide_unseen(block, tile, from, keys, scratch.x);
    __builtin_memcpy(state.scores + from * rows, scratch.x, static_cast<size_t>(keys * rows) * sizeof(float));
  }
}

// Weights are relative to the largest score; the division by their sum waits for the last step, which rounds once.
template <int Vecs>
void unfused_softmax_as(const Call& call, int64_t seq_k, const UnfusedTile& state) {
  constexpr int rows = Vecs * width;
  Floats top[Vecs], reference[Vecs];
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs; ++v) top[v] = splat(-float_infinity);
  raise_largest(state.scores, seq_k, top);
  ATTUNE_UNROLL
  for (int v = 0; v < Vecs; ++v) {
    reference[v] = reference_of(top[v]);
    store(state.largest + v * width, top[v]);
  }
  for (int lane = 0; lane < rows; ++lane) state.sums[lane] = 0;
  for (int64_t from = 0; from < seq_k; from += chunk_keys) {
    float* x = state.scores + from * rows;
    const int64_t keys = smaller_of(chunk_keys, seq_k - from);
    Floats total[Vecs] = {};
    weigh<float>(call, x, SameEnds<Vecs>(keys).ends, reference, x, total);
    if (call.problem->dtype == Dtype::f32) {
      for (int64_t i = 0; i < keys * rows; i += rows)
        for (int lane = 0; lane < rows; ++lane) state.sums[lane] += static_cast<double>(x[i + lane]);
    } else {
      for (int lane = 0; lane < rows; ++lane)
        state.sums[lane] += static_cast<double>(total[lane / width][lane % width]);
    }
  }
}

template <typename T, int Vecs>
void unfused_values_as(const Call& call, const Block& block, int64_t seq_k, const UnfusedTile& state, void* memory) {
  Arena arena(memory);
  Scratch<T> scratch(*call.problem, arena);
  constexpr int rows = Vecs * width;
  Tile<T>& tile = scratch.tiles[0];
  tile.count = block.count;
  tile.vecs = Vecs;
  for (int lane = 0; lane < rows; ++lane) {
    scratch.rescale[lane] = 1;
    tile.largest[lane] = state.largest[lane];
    tile.sums[lane] = static_cast<T>(state.sums[lane]);
  }
  for (int64_t from = 0; from < seq_k; from += chunk_keys) {
    const int64_t keys = smaller_of(chunk_keys, seq_k - from);
    const float* steps = steps_of(call, block, scratch, from, from + keys);
    value_block<T, Vecs>(strip_from(steps, scratch.layout, 0), scratch.layout.v_strips, SameEnds<Vecs>(keys).ends,
                         state.scores + from * rows, scratch.rescale, from > 0,
                         !values_are_finite(steps, scratch.layout, 0, keys), tile.out);
  }
  end_tile(call, block, scratch.out_rows, tile);
}

inline void unfused_scores(const Call& call, const Block& block, int64_t seq_k, const UnfusedTile& state,
                           void* scratch) {
  with_vecs(state.count, [&]<int Vecs>() { unfused_scores_as<Vecs>(call, block, seq_k, state, scratch); });
}
inline void unfused_softmax(const Call& call, int64_t seq_k, const UnfusedTile& state) {
  with_vecs(state.count, [&]<int Vecs>() { unfused_softmax_as<Vecs>(call, seq_k, state); });
}
inline void unfused_values(const Call& call, const Block& block, int64_t seq_k, const UnfusedTile& state,
                           void* scratch) {
  with_vecs(state.count, [&]<int Vecs>() {
    if (call.problem->dtype == Dtype::f32)
      unfused_values_as<double, Vecs>(call, block, seq_k, state, scratch);
    else
      unfused_values_as<float, Vecs>(call, block, seq_k, state, scratch);
  });
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
