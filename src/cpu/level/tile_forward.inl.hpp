// A task in pairs of bf16 from end to end, and what their products cannot do right: numbers that are not finite, values
// too small and, in three parts, scores of numbers too large for them.
#pragma once

#include "cpu/level/level.inl.hpp"
#include "cpu/level/tile_pack_bf16.inl.hpp"
#include "cpu/level/tile_pack_parts.inl.hpp"
#include "cpu/level/tile_softmax.inl.hpp"
#if defined(ATTUNE_PAIRS_IN_VECTORS)
#include "cpu/level/pair_products.inl.hpp"
#else
#include "cpu/level/tile_products.inl.hpp"
#endif

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// An infinite number has no parts: its products are infinity times 0. Such scores of a step are computed anew, and so
// are those of other numbers that are unfit for them.
template <Format format>
void patch_scores(const Call& call, const Block& block, const TileLayout& layout, const Group& group, int64_t from,
                  float* x) {
  if (group.special_rows == 0 && !header_at(block, layout, from).special_keys) return;
  const Problem& p = *call.problem;
  alignas(vector_bytes) float q[max_head_dim];
  for (int64_t key = from; key < smaller_of(from + step_keys, block.seq_k); ++key) {
    const char* k = element(call.operands->in(Operand::k), p.dtype, key_offset(p, p.k, block, key));
    Ints unfit{};
    for_each_vector<format.dtype>(k, p.dim_qk,
                                  [&](int64_t, Floats value) { unfit |= is_unfit_for_scores<format>(value); });
    const uint32_t rows = any(unfit) ? ~0u : group.special_rows;
    for (int lane = 0; lane < group.rows.count; ++lane) {
      if ((rows >> lane & 1u) == 0) continue;
      load_q_row(call, block, group.rows.first + lane, q);
      Floats sum{};
      for_each_vector<format.dtype>(k, p.dim_qk, [&](int64_t d, Floats value) { sum += value * load(q + d); });
      x[(key - from) * group_rows + lane] = sum_of<float>(sum);
    }
  }
}

inline void set_to_zero(float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += width) store(to + i, Floats{});
}

// Adds weight times value for the values of a step that were packed as 0, where the weight is not 0.
template <Format format>
void add_special_values(const Call& call, const Block& block, const TileLayout& layout, Group& group, int64_t from,
                        const char* weights) {
  if (!header_at(block, layout, from).special_values) return;
  if (!group.has_special_out) set_to_zero(group.special_out, layout.out_count());
  group.has_special_out = true;
  const Problem& p = *call.problem;
  for (int64_t key = from; key < smaller_of(from + step_keys, block.seq_k); ++key) {
    const char* pair = weights + (key - from) / 2 * tile_row_bytes;
    const auto weight_in = [&](int64_t tile) {
      const auto words = load_bytes<Words>(pair + tile * tile_bytes);
      return bits_as<Floats>(key % 2 == 0 ? words << 16 : words & 0xffff0000u);
    };
    const char* v = element(call.operands->in(Operand::v), p.dtype, key_offset(p, p.v, block, key));
    for_each_vector<format.dtype>(v, p.dim_v, [&](int64_t column, Floats value) {
      const Ints unfit = is_special<format>(value);
      for (int i = 0; i < width; ++i) {
        if (unfit[i] == 0) continue;
        float* out = group.special_out + (column + i) * group_rows;
        for (int64_t half = 0; half < 2; ++half) {
          Floats weight = weight_in(half);
          for (int part = 1; part < format.parts; ++part) weight += weight_in(2 * part + half);
          const Floats sum = load(out + half * width);
          store(out + half * width, weight == 0.0f ? sum : sum + weight * value[i]);
        }
      }
    });
  }
}

// The keys [from, to) of one chunk for one group.
template <Format format, bool exact_sums>
void forward_group(ProductUnit& unit, const Call& call, const Block& block, const TileLayout& layout,
                   const TileScratch& scratch, Group& group, int64_t from, int64_t to, TaskAhead& ahead) {
  constexpr int Parts = format.parts;
  constexpr int64_t step_weights = Parts * 2 * tile_bytes;
  const auto weights_at = [&](int64_t key) { return scratch.weights + (key - from) / step_keys * step_weights; };
  int64_t summed = from;  // up to here, weights have met their values
  bool holds_q = false;
  const auto add_values = [&](int64_t end) {
    holds_q = false;
    value_steps<Parts>(unit, block, layout, group, summed, end, weights_at(summed));
    for (; summed < end; summed += step_keys)
      add_special_values<format>(call, block, layout, group, summed, weights_at(summed));
  };
  const auto x_of = [&](int64_t key) { return scratch.x[key / step_keys % 2]; };
  // True if keys of the step are hidden from some row. Most steps have plain scores, and are not looked at any further.
  const bool has_mask = (call.problem->features & (ATTUNE_BIAS | ATTUNE_MASK)) != 0;
  const bool plain = Parts == 1 && !has_mask && !(call.cap > 0);
  const auto shape = [&](int64_t key, float* x) {
    const bool all_see = key >= group.rows.common_begin && key + step_keys <= group.rows.common_end;
    if (plain && all_see && group.all_begun) [[likely]]
      return false;
    if constexpr (Parts > 1) patch_scores<format>(call, block, layout, group, key, x);
    shape_scores(call, block, group.rows, key, smaller_of(step_keys, group.rows.end - key), x, scratch.bias);
    hide_unseen(block, group.rows, key, step_keys, x);
    begin_references<Parts>(call, group, x);
    return !all_see || has_mask;
  };
  using Careful = typename WeightsOf<format, exact_sums, true>::Type;
  // After weights that did not fit. They are not handed over: what is passed on would be kept in memory.
  const auto weigh_again = [&](int64_t key, const float* x) {
    Careful weights(call, group, x, weights_at(key));
    weights.finish();
    if (weights.fit(group)) return weights.add_to(group);
    if (summed < key) add_values(key);  // by the references so far
    Floats top[group_vecs];
    Ints moves[group_vecs];
    weights.find_moves(call, group, x, top, moves);
    move_references<Parts>(call, layout, group, top, moves);
    if constexpr (Parts == 1) set_distances(call, group);
    Careful again(call, group, x, weights_at(key));
    again.finish();
    again.add_to(group);
  };
  // The scores of the next step are computed beside the weights of this one.
  const auto weigh = [&]<typename Weights>(int64_t key, const float* x) {
    Weights weights(call, group, x, weights_at(key));
    if (const int64_t next = key + step_keys; next < to)
      score_step<format>(unit, call, block, layout, group, next, scratch.last_keys, x_of(next), holds_q, weights);
    weights.finish();
    weights.fit(group) ? weights.add_to(group) : weigh_again(key, x);
  };
  Idle idle;
  score_step<format>(unit, call, block, layout, group, from, scratch.last_keys, x_of(from), holds_q, idle);
  for (int64_t key = from; key < to; key += step_keys) {
    float* const x = x_of(key);
    const bool hides = shape(key, x);
    ahead.step();
    if (hides || group.some_far)
      weigh.template operator()<Careful>(key, x);
    else
      weigh.template operator()<typename WeightsOf<format, exact_sums, false>::Type>(key, x);
  }
  add_values(to);
}

// Sums so far continue in double, and those of the tile unit begin anew.
inline void keep_whole_sums(const TileLayout& layout, Group& group) {
  if (!group.has_out) return;
  for (int64_t i = 0; i < layout.out_count(); i += width) {
    const Floats sums = load(group.rows.out + i);
    double* const whole = group.whole_out + i;
    const bool has_whole = group.has_whole_out;
    store(whole, has_whole ? load(whole) + low_doubles(sums) : low_doubles(sums));
    store(whole + double_width, has_whole ? load(whole + double_width) + high_doubles(sums) : high_doubles(sums));
  }
  group.has_whole_out = true;
  group.has_out = false;
}

// 16 rows' sums of one column.
inline Floats sums_of_column(const Group& group, int64_t column, int half) {
  const int64_t at = column * group_rows + half * width;
  Floats sums = group.has_out ? load(group.rows.out + at) : Floats{};
  if (group.has_whole_out) {
    const double* const whole = group.whole_out + at;
    sums = floats_from_doubles(load(whole) + low_doubles(sums), load(whole + double_width) + high_doubles(sums));
  }
  return group.has_special_out ? sums + load(group.special_out + at) : sums;
}

template <Format format>
RowTotals totals_of(const Group& group, int lane) {
  double total = group.rows.sums[lane];
  if (format.parts == 3) total += group.sums_rest[lane];
  return {group.rows.largest[lane], format.dtype == Dtype::bf16 ? group.rounded_sums[lane] : total, total};
}

// Two vectors of elements, pairwise.
template <Dtype dtype>
Words pairs_from_floats(Floats even, Floats odd) {
  if constexpr (dtype == Dtype::f16) {
    const auto words = [](Floats v) { return __builtin_convertvector(f16_from_floats(v), Words); };
    return words(even) | words(odd) << 16;
  }
  return upper_halves(rounded_to_bf16(even), rounded_to_bf16(odd));
}

// Ends a group's rows, which are transposed as pairs of elements.
template <Format format>
void write_group(const Call& call, const Block& block, const Group& group) {
  const Problem& p = *call.problem;
  const float* const sums = format.dtype == Dtype::bf16 ? group.rounded_sums : group.rows.sums;
  const bool plain = (p.features & (ATTUNE_SINK | ATTUNE_LSE)) == 0;  // then the sums are all there is to a row
  for (int half = 0; half < group_vecs; ++half) {
    char* to[tile_side] = {};
    const Floats total = load(sums + half * width);
    alignas(vector_bytes) float weights[tile_side];
    store(weights, total == 0.0f ? Floats{} : 1.0f / total);
    for (int i = 0; i < tile_side && half * width + i < group.rows.count; ++i) {
      const int lane = half * width + i;
      const StackedRow at = stacked_row(call, block, group.rows.first + lane);
      to[i] = static_cast<char*>(call.operands->out(Operand::o)) + q_offset(p, p.o, block, at) * size_of<format.dtype>;
      if (!plain)
        weights[i] = static_cast<float>(end_weights(call, block, at, totals_of<format>(group, lane)));
      else if (at.row >= block.seq_q)
        weights[i] = 0;
    }
    const Floats weight = load(weights);
    for (int64_t column = 0; column < p.dim_v; column += 2 * tile_side) {
      const auto element = [&](int64_t at) {
        return weight == 0.0f ? Floats{} : sums_of_column(group, at, half) * weight;
      };
      Words pairs[tile_side];
      for (int64_t i = 0; i < tile_side; ++i)
        pairs[i] = pairs_from_floats<format.dtype>(element(column + 2 * i), element(column + 2 * i + 1));
      const __mmask32 columns = first_halves(p.dim_v - column);
      transpose_to(pairs, [&](int row, Words elements) {
        if (to[row] != nullptr) _mm512_mask_storeu_epi16(to[row] + column * 2, columns, bits_as<__m512i>(elements));
      });
    }
  }
}

// Ends a group's rows, or leaves them to join().
template <Format format>
void end_group(const Call& call, const Block& block, const Group& group, float* some_rows) {
  if constexpr (format.dtype != Dtype::f32)
    if (block.partial == nullptr) return write_group<format>(call, block, group);
  for (int half = 0; half < group_vecs; ++half) {
    for (int64_t column = 0; column < call.problem->dim_v; column += tile_side) {
      Words tile[tile_side];
      for (int64_t i = 0; i < tile_side; ++i) tile[i] = bits_as<Words>(sums_of_column(group, column + i, half));
      transpose(tile, reinterpret_cast<char*>(some_rows + column), row_pitch * static_cast<int64_t>(sizeof(float)));
    }
    for (int i = 0; i < width && half * width + i < group.rows.count; ++i) {
      const int lane = half * width + i;
      finish_row(call, block, group.rows.first + lane, some_rows + i * row_pitch, totals_of<format>(group, lane));
    }
  }
}

template <Format format>
void begin_group(const Call& call, const Block& block, const TileLayout& layout, Group& group) {
  const Tile<float>& rows = group.rows;
  if constexpr (format.dtype == Dtype::bf16)
    transpose_q(call, block, layout, rows.first, rows.count, group.q);
  else
    group.special_rows = split_q<format>(call, block, layout, rows.first, rows.count, group.q);
}

// All rows begin, then all products are computed, then all rows end: each time that the tile unit pauses, it takes
// hundreds of cycles to start again.
template <Format format, bool exact_sums>
void forward_pairs_as(const Call& call, const Block& block, void* memory) {
  const Problem& p = *call.problem;
  const TileLayout layout(p);
  Arena arena(memory);
  TileScratch scratch(p, layout, arena);
  int64_t begin = INT64_MAX, end = 0, steps = 0;
  int groups = 0;
  for (int first = 0; first < block.count; first += group_rows, ++groups) {
    Group& group = scratch.groups[groups];
    const int count = static_cast<int>(smaller_of(group_rows, block.count - first));
    begin_rows(block, first, count, group_vecs, group.rows);
    set_to_zero(group.rounded_sums, group_rows);
    set_to_zero(group.sums_rest, group_rows);
    group.has_out = group.has_special_out = group.has_whole_out = group.all_begun = false;
    begin = smaller_of(begin, group.rows.begin);
    end = larger_of(end, group.rows.end);
    if (group.rows.begin >= group.rows.end) continue;
    steps += (group.rows.end - group.rows.begin) / step_keys + 1;
    begin_group<format>(call, block, layout, group);
  }
  const int64_t tail = block.seq_k % step_keys;
  if (layout.k_in_place && tail != 0) copy_k_step(call, block, layout, block.seq_k - tail, tail, scratch.last_keys);
  TaskAhead ahead(call, block, steps);
  ProductUnit unit;
  for (int64_t chunk = begin; chunk < end;) {
    const int64_t next = (chunk / layout.chunk_keys + 1) * layout.chunk_keys;
    for (int i = 0; i < groups; ++i) {
      Group& group = scratch.groups[i];
      const int64_t from = larger_of(chunk, group.rows.begin) / step_keys * step_keys;
      const int64_t to = smaller_of(next, round_up(group.rows.end, step_keys));
      if (from >= to) continue;
      forward_group<format, exact_sums>(unit, call, block, layout, scratch, group, from, to, ahead);
    }
    chunk = next;
    if (format.parts == 3 && chunk % tile_sum_keys == 0 && chunk < end)
      for (int i = 0; i < groups; ++i) keep_whole_sums(layout, scratch.groups[i]);
  }
  for (int i = 0; i < groups; ++i) end_group<format>(call, block, scratch.groups[i], scratch.some_rows);
}

// Calls f with the problem's format, of those that this level computes in pairs.
template <typename F>
void with_format(const Problem& p, F&& f) {
  if constexpr (multiplies_parts) {
    if (p.dtype == Dtype::f16) return f.template operator()<f16_parts>();
    if (p.dtype == Dtype::f32)
      return format_of(p).parts == 3 ? f.template operator()<f32_parts>() : f.template operator()<f32_rounded>();
  }
  f.template operator()<bf16_whole>();
}

void forward_pairs(const Call& call, const Block& block, void* scratch) {
  const Problem& p = *call.problem;
  if (!in_pairs(p)) return forward_block(call, block, scratch);
  with_format(p, [&]<Format format>() {
    if constexpr (format.dtype == Dtype::bf16)
      if ((p.features & ATTUNE_LSE) == 0) return forward_pairs_as<format, false>(call, block, scratch);
    forward_pairs_as<format, true>(call, block, scratch);
  });
}

int pair_task_rows(const Problem& p) { return in_pairs(p) ? tile_block_rows : block_rows; }

size_t pair_scratch_bytes(const Problem& p) {
  Arena arena(nullptr);
  const TileScratch scratch(p, TileLayout(p), arena);
  const size_t vectors = scratch_bytes(p);
  return arena.used() > vectors ? arena.used() : vectors;
}

size_t packed_step_bytes(const Problem& p) {
  return in_pairs(p) ? static_cast<size_t>(TileLayout(p).step_bytes()) : vector_step_bytes(p);
}

// One step of keys, complete.
template <Format format>
void pack_tile_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                    char* to) {
  StepHeader header{};
  if constexpr (format.dtype == Dtype::bf16) {
    header.special_values = transpose_v_step(call, block, layout, from, keys, to + layout.v_at());
    if (!layout.k_in_place) copy_k_step(call, block, layout, from, keys, to + layout.k_at());
  } else {
    header.special_values = split_v_step<format>(call, block, layout, from, keys, to + layout.v_at());
    header.special_keys = split_k_step<format>(call, block, layout, from, keys, to + layout.k_at());
  }
  __builtin_memcpy(to, &header, sizeof header);
}

void pack_keys(const Call& call, const Block& block, int64_t from, int64_t keys, char* to) {
  if (!in_pairs(*call.problem)) return pack_vector_step(call, block, from, keys, to);
  const TileLayout layout(*call.problem);
  with_format(*call.problem, [&]<Format format>() { pack_tile_step<format>(call, block, layout, from, keys, to); });
}

// The level whose blocks of pairs are computed by this file, and all else in vectors.

constexpr Level pair_level_table(const char* name) {
  Level level = level_table(name, true);
  level.scratch_bytes = pair_scratch_bytes;
  level.forward_block = forward_pairs;
  level.task_rows = pair_task_rows;
  level.needs_packed = in_pairs;
  level.packed_bytes = packed_step_bytes;
  level.pack = pack_keys;
  return level;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
