// A task of the tile unit from end to end, and what its products cannot do right: numbers that are not finite, and
// values too small for them.
#pragma once

#include "cpu/level/level.inl.hpp"
#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// An infinite number has no two parts: its products are infinity times 0. Such scores are computed anew.
template <Dtype dtype>
void patch_scores(const Call& call, const Block& block, const TileLayout& layout, const Group& group) {
  const Problem& p = *call.problem;
  alignas(vector_bytes) float q[max_head_dim];
  for (int64_t key = group.from; key < smaller_of(group.to, block.seq_k); ++key) {
    if (group.special_rows == 0 && !header_at(block, layout, key).special_keys) {
      key += step_keys - 1 - key % step_keys;
      continue;
    }
    const char* k = element(call.args->k, dtype, key_offset(p, p.k, block, key));
    Ints unfit{};
    for_each_vector<dtype>(k, p.dim_qk, [&](int64_t, Floats value) { unfit |= is_not_finite(value); });
    const uint32_t rows = any(unfit) ? ~0u : group.special_rows;
    for (int lane = 0; lane < group.rows.count; ++lane) {
      if ((rows >> lane & 1u) == 0) continue;
      load_q_row(call, block, group.rows.first + lane, q);
      Floats sum{};
      for_each_vector<dtype>(k, p.dim_qk, [&](int64_t d, Floats value) { sum += value * load(q + d); });
      group.x[(key - group.from) * group_rows + lane] = sum_of<float>(sum);
    }
  }
}

inline void set_to_zero(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += width) store(to + i, Floats{});
}

// Adds weight times value for the values that were packed as 0, where the weight is not 0.
template <Dtype dtype>
void add_special_values(const Call& call, const Block& block, const TileLayout& layout, Group& group) {
  const Problem& p = *call.problem;
  for (int64_t key = group.from; key < smaller_of(group.to, block.seq_k); ++key) {
    if (!header_at(block, layout, key).special_values) {
      key += step_keys - 1 - key % step_keys;
      continue;
    }
    if (!group.has_special_out) set_to_zero(group.special_out, layout.v_strips * 2 * tile_side * group_rows);
    group.has_special_out = true;
    const int64_t at = key - group.from;
    const char* pair =
        group.weights + at / step_keys * (layout.parts * 2 * tile_bytes) + at % step_keys / 2 * tile_row_bytes;
    const auto weight_of = [&](int64_t tile) {
      const auto words = load_bytes<Words>(pair + tile * tile_bytes);
      return bits_as<Floats>(key % 2 == 0 ? words << 16 : words & 0xffff0000u);
    };
    const char* v = element(call.args->v, dtype, key_offset(p, p.v, block, key));
    for_each_vector<dtype>(v, p.dim_v, [&](int64_t column, Floats value) {
      const Ints unfit = is_special(value);
      for (int i = 0; i < width; ++i) {
        if (unfit[i] == 0) continue;
        float* out = group.special_out + (column + i) * group_rows;
        for (int64_t half = 0; half < 2; ++half) {
          const Floats weight = layout.parts == 1 ? weight_of(half) : weight_of(half) + weight_of(2 + half);
          const Floats sum = load(out + half * width);
          store(out + half * width, weight == 0.0f ? sum : sum + weight * value[i]);
        }
      }
    });
  }
}

template <Dtype dtype>
void forward_tiles_as(const Call& call, const Block& block, void* memory) {
  constexpr int Parts = parts_of<dtype>;
  const Problem& p = *call.problem;
  const TileLayout layout(p);
  Arena arena(memory);
  TileScratch scratch(p, layout, arena);
  int64_t begin = INT64_MAX, end = 0;
  int groups = 0;
  for (int first = 0; first < block.count; first += group_rows, ++groups) {
    Group& group = scratch.groups[groups];
    const int count = static_cast<int>(smaller_of(group_rows, block.count - first));
    begin_rows(block, first, count, group_rows / width, group.rows);
    set_to_zero(group.rows.out, layout.v_strips * 2 * tile_side * group_rows);
    set_to_zero(group.rounded_sums, group_rows);
    group.special_rows = pack_q<Parts>(call, block, layout, first, count, scratch.q_rows, row_pitch, group.q);
    begin = smaller_of(begin, group.rows.begin);
    end = larger_of(end, group.rows.end);
  }
  const int64_t tail = block.seq_k % step_keys;
  if (layout.k_in_place && tail != 0)
    pack_k_step<dtype>(call, block, layout, block.seq_k - tail, tail, scratch.last_keys);

  Tiles tiles;
  for (int64_t chunk = begin; chunk < end;) {
    const int64_t next = (chunk / layout.chunk_keys + 1) * layout.chunk_keys;
    for (int first = 0; first < groups; first += phase_groups) {
      const auto each = [&](const auto& phase) {
        for (int i = first; i < smaller_of(first + phase_groups, groups); ++i)
          if (scratch.groups[i].from < scratch.groups[i].to) phase(scratch.groups[i]);
      };
      for (int i = first; i < smaller_of(first + phase_groups, groups); ++i) {
        Group& group = scratch.groups[i];
        group.from = larger_of(chunk, group.rows.begin) / step_keys * step_keys;
        group.to = smaller_of(next, round_up(group.rows.end, step_keys));
      }
      each([&](Group& group) { tile_scores<dtype>(tiles, call, block, layout, group, scratch.last_keys); });
      each([&](Group& group) {
        if constexpr (Parts == 2) patch_scores<dtype>(call, block, layout, group);
        const int64_t keys = smaller_of(group.to, group.rows.end) - group.from;
        shape_scores(call, block, group.rows, group.from, keys, group.x, scratch.bias);
        hide_unseen(block, group.rows, group.from, group.to - group.from, group.x);
        tile_softmax<Parts>(call, layout, group);
      });
      each([&](Group& group) {
        tile_values<Parts>(tiles, block, layout, group);
        add_special_values<dtype>(call, block, layout, group);
      });
    }
    chunk = next;
  }
  for (int i = 0; i < groups; ++i) {
    const Group& group = scratch.groups[i];
    for (int64_t j = 0; j < p.dim_v * group_rows; j += width) {
      Floats out = load(group.rows.out + j);
      if (group.has_special_out) out += load(group.special_out + j);
      if constexpr (Parts == 1) {
        // O is the mean by the weights that were used, the LSE that of the weights before rounding.
        const Floats rounded = load(group.rounded_sums + j % group_rows);
        const Floats ratio = load(group.rows.sums + j % group_rows) / rounded;
        out = rounded == 0.0f ? out : out * ratio;
      }
      store(group.rows.out + j, out);
    }
    end_tile(call, block, scratch.out_rows, group.rows);
  }
}

void forward_tiles(const Call& call, const Block& block, void* scratch) {
  switch (call.problem->dtype) {
    case Dtype::f16:
      return forward_tiles_as<Dtype::f16>(call, block, scratch);
    case Dtype::bf16:
      return forward_tiles_as<Dtype::bf16>(call, block, scratch);
    case Dtype::f32:
      return on_tiles(*call.problem) ? forward_tiles_as<Dtype::f32>(call, block, scratch)
                                     : forward_block(call, block, scratch);
  }
}

int tile_task_rows(const Problem& p) { return on_tiles(p) ? tile_block_rows : block_rows; }

size_t tile_scratch_bytes(const Problem& p) {
  const size_t without = scratch_bytes(p);
  Arena arena(nullptr);
  const TileScratch scratch(p, TileLayout(p), arena);
  return arena.used() > without ? arena.used() : without;
}

size_t packed_step_bytes(const Problem& p) { return on_tiles(p) ? static_cast<size_t>(TileLayout(p).step_bytes()) : 0; }

void pack_keys(const Call& call, const Block& block, int64_t from, int64_t keys, char* to) {
  const TileLayout layout(*call.problem);
  with_dtype(call.problem->dtype, [&]<Dtype dtype>() { pack_step<dtype>(call, block, layout, from, keys, to); });
}

constexpr Level tile_level_table(const char* name) {
  Level level = level_table(name, true);
  level.scratch_bytes = tile_scratch_bytes;
  level.forward_block = forward_tiles;
  level.task_rows = tile_task_rows;
  level.packed_bytes = packed_step_bytes;
  level.pack = pack_keys;
  level.works = tiles_work;
  return level;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
