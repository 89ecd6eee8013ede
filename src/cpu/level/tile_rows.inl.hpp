// The row path on the tile unit, for up to 16 rows of bf16 against many keys (decoding with grouped heads). K and V are
// read once, in the order of memory, like in rows.inl.hpp; what is different is that the products take so few
// instructions that memory stays the limit.
//
// S^T = K Q^T, 32 keys at a time: K is the left operand and is read in place. The scores of a key lie side by side, R
// floats for up to R rows, so that a vector has those of 16 / R keys, and the softmax takes no steps across lanes. Then
// O = P V: rows of P are the left operand, and two keys of V interleaved the right one. Interleaving takes one
// instruction per vector because it keeps to 128-bit lanes: columns of O are out of order until the end.
//
// A row's result does not depend on its neighbours: steps and chunks of keys lie at fixed multiples, and a hidden key
// adds exact zeros.
#pragma once

#include "cpu/level/tile_row_products.inl.hpp"
#include "cpu/level/tile_row_softmax.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// A single row has nothing to gain: its products in vectors are as quick as memory.
constexpr int least_tile_rows = 2;
constexpr int most_tile_rows = tile_side;
// What is fetched lies as many steps ahead as have this many rows of memory, of all heads of the task.
constexpr int64_t least_rows_ahead = 64;

// Ends the rows of a head.
template <int R>
void end_tile_head(const Call& call, const Block& block, const TileRowScratch<R>& scratch, const TileRowHead& head) {
  for (int r = 0; r < block.count; ++r) {
    for (int64_t strip = 0; strip < scratch.v_strips; ++strip) {
      const float* const out = head.out + (strip * 2 * R + r) * tile_side;
      const Floats a = load(out), b = load(out + R * tile_side);
      const Floats first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const Floats second = __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      store(scratch.out_row + strip * 2 * width, first);
      store(scratch.out_row + (strip * 2 + 1) * width, second);
    }
    double total = 0, rounded_total = 0;
    for (int lane = r; lane < width; lane += R) {
      total += static_cast<double>(head.total[lane]);
      rounded_total += static_cast<double>(head.rounded_total[lane]);
    }
    finish_row(call, block, r, scratch.out_row, {head.largest[r], rounded_total, total});
  }
}

// The keys that every row sees.
inline KeyRange keys_seen_by_all(const Block& block) {
  KeyRange seen = block.visible[0];
  for (int r = 1; r < block.count; ++r) {
    seen.begin = larger_of(seen.begin, block.visible[r].begin);
    seen.end = smaller_of(seen.end, block.visible[r].end);
  }
  return seen;
}

template <int R>
void forward_tile_rows_as(const Call& call, const Block& block, void* memory) {
  const Problem& p = *call.problem;
  Arena arena(memory);
  TileRowScratch<R> scratch(p, block.heads, arena);
  for (int h = 0; h < block.heads; ++h) begin_tile_head(call, block_of_head(block, h), scratch, scratch.heads[h]);
  const KeyRange seen = keys_seen(block);
  const int64_t begin = seen.begin, end = round_up(seen.end, step_keys);
  const KeyRange seen_by_all = keys_seen_by_all(block);
  const bool plain = (p.features & (ATTUNE_BIAS | ATTUNE_MASK)) == 0 && !(call.cap > 0);

  const int64_t k_pitch = p.k.row * 2, v_pitch = p.v.row * 2, k_head = p.k.head * 2, v_head = p.v.head * 2;
  const auto k_at = [&](int64_t key) { return element(call.args->k, p.dtype, key_offset(p, p.k, block, key)); };
  const auto v_at = [&](int64_t key) { return element(call.args->v, p.dtype, key_offset(p, p.v, block, key)); };
  const auto keys_at = [&](int64_t key) { return smaller_of(step_keys, block.seq_k - key); };
  const auto steps_of = [](int64_t rows) { return (rows + step_keys - 1) / step_keys; };
  const int64_t steps_ahead = steps_of((least_rows_ahead + block.heads - 1) / block.heads);
  const int64_t k_calls = block.heads * scratch.qk_steps * fetches_per_qk_step;
  const int64_t v_calls = block.heads * scratch.v_strips * fetches_per_strip;
  const auto k_ahead = [&](int64_t key, int64_t calls) {
    if (key >= end) return LinesAhead();
    return LinesAhead(k_at(key), k_pitch, k_head, p.dim_qk * 2, keys_at(key), block.heads, calls);
  };
  const auto v_ahead = [&](int64_t key, int64_t calls) {
    return LinesAhead(v_at(key), v_pitch, v_head, p.dim_v * 2, keys_at(key), block.heads, calls);
  };
  {
    Tiles tiles(row_tiles<R>);
    ValueStrip pending;
    for (int64_t from = begin / step_keys * step_keys; from < end;) {
      const int64_t next = smaller_of(end, (from / key_alignment + 1) * key_alignment);
      // What is to be fetched after `done` steps of this chunk, of which those of K come before those of V.
      const int64_t steps = (next - from) / step_keys;
      const auto ahead_of = [&](int64_t done, int64_t calls) {
        const int64_t key = from + (done + steps_ahead) * step_keys, chunk = next - from;
        if (key < next) return k_ahead(key, calls);
        return key < next + chunk ? v_ahead(key - chunk, calls) : k_ahead(key - chunk, calls);
      };
      for (int64_t key = from; key < next; key += step_keys) {
        LinesAhead ahead = ahead_of((key - from) / step_keys, k_calls);
        const char* k = k_at(key);
        for (int h = 0; h < block.heads; ++h, k += k_head)
          tile_row_scores<R>(tiles, step_rows(k, k_pitch, keys_at(key), p.dim_qk, scratch.copied), scratch.heads[h].q,
                             scratch.qk_steps, ahead, scratch.heads[h].x + (key - from) * R);
      }
      for (int64_t key = from; key < next; key += step_keys) {
        LinesAhead ahead = ahead_of(steps + (key - from) / step_keys, v_calls);
        const char* v = v_at(key);
        for (int h = 0; h < block.heads; ++h, v += v_head) {
          TileRowHead& head = scratch.heads[h];
          if (key == from) {
            if (!plain || from < seen_by_all.begin || next > seen_by_all.end)
              shape_tile_rows<R>(call, block_of_head(block, h), from, next, head.x, scratch.bias);
            raise_largest(call, scratch, head, steps);
          }
          char* const weights = head.weights + (key - from) / step_keys * weights_bytes<R>;
          weigh_step<R>(call, head, head.x + (key - from) * R, weights);
          const StepRows rows = step_rows(v, v_pitch, keys_at(key), p.dim_v, scratch.copied);
          tile_row_values<R>(tiles, scratch, rows, weights, key == from ? head.out : head.next_out, head.next_out,
                             ahead, pending);
        }
      }
      multiply_strip<R>(tiles, pending);
      pending.from = nullptr;
      for (int h = 0; h < block.heads; ++h)
        end_chunk(tiles, scratch, scratch.heads[h], steps, [&](int64_t step) {
          const int64_t key = from + step * step_keys;
          return step_rows(v_at(key) + h * v_head, v_pitch, keys_at(key), p.dim_v, scratch.copied);
        });
      from = next;
    }
  }
  for (int h = 0; h < block.heads; ++h) {
    Block of = block_of_head(block, h);
    if (of.partial != nullptr) of.partial += h * block.partial_head;
    end_tile_head(call, of, scratch, scratch.heads[h]);
  }
}

inline int most_rows_of_row_path(const Problem& p) { return p.dtype == Dtype::bf16 ? most_tile_rows : few_rows; }

inline void forward_tile_rows(const Call& call, const Block& block, void* scratch) {
  if (call.problem->dtype != Dtype::bf16 || block.count < least_tile_rows) return forward_rows(call, block, scratch);
  if (block.count <= 4) return forward_tile_rows_as<4>(call, block, scratch);
  if (block.count <= 8) return forward_tile_rows_as<8>(call, block, scratch);
  forward_tile_rows_as<most_tile_rows>(call, block, scratch);
}

inline size_t tile_rows_scratch_bytes(const Problem& p) {
  Arena arena(nullptr);
  const TileRowScratch<most_tile_rows> scratch(p, static_cast<int>(smaller_of(p.heads_kv, max_task_heads)), arena);
  return arena.used();
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
