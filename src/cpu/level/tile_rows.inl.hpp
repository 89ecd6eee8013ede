// The row path on the tile unit, for up to 16 rows of bf16 against many keys (decoding with grouped heads). K and V are
// read once, in the order of memory, like in rows.inl.hpp; what is different is that the products take so few
// instructions that memory stays the limit.
//
// S^T = K Q^T, 32 keys at a time: K is the left operand and is read in place. The scores of a key lie side by side, R
// floats for up to R rows, so that a vector has those of 16 / R keys, and the softmax takes no steps across lanes. Then
// O = P V: rows of P are the left operand, and V is the right one, in place as well. Pairs of V are neighbouring
// columns and not keys, so that a weight comes once beside a 0, for the even columns of O, and once after one, for the
// odd ones. Up to 8 rows have both in one tile.
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
      const Floats even = load(out), odd = load(out + R * tile_side);
      store(scratch.out_row + strip * 2 * width, interleave_low(even, odd));
      store(scratch.out_row + (strip * 2 + 1) * width, interleave_high(even, odd));
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

// A task: rows of some KV heads. A span of keys at a time, first scores and then values; a chunk of a span at a time,
// references move.
template <int R>
class TileRowTask {
 public:
  TileRowTask(const Call& call, const Block& block, Arena arena)
      : call_(call), block_(block), p_(*call.problem), scratch_(p_, block.heads, arena) {
    const KeyRange seen = keys_seen(block);
    begin_ = seen.begin / step_keys * step_keys;
    end_ = round_up(seen.end, step_keys);
    seen_by_all_ = keys_seen_by_all(block);
    plain_ = (p_.features & (ATTUNE_BIAS | ATTUNE_MASK)) == 0 && !(call.cap > 0);
    steps_ahead_ = (least_rows_ahead + block.heads * step_keys - 1) / (block.heads * step_keys);
  }

  void compute() {
    LinesAhead ahead = begin_ < end_ ? lines_of_k(begin_, block_.heads) : LinesAhead();
    for (int h = 0; h < block_.heads; ++h) {
      ahead.fetch();
      begin_tile_head(call_, block_of_head(block_, h), scratch_, scratch_.heads[h]);
    }
    const auto after = [&](int64_t key, int64_t multiple) { return smaller_of(end_, (key / multiple + 1) * multiple); };
    Tiles tiles;
    for (int64_t from = begin_; from < end_; from = span_.end) {
      span_ = {from, after(from, keys_of_span(block_.heads))};
      compute_scores(tiles);
      tiles.configure(value_tiles<R>);
      for (int64_t key = from; key < span_.end; key = chunk_.end) {
        chunk_ = {key, after(key, key_alignment)};
        add_values(tiles);
      }
    }
    for (int h = 0; h < block_.heads; ++h) {
      Block of = block_of_head(block_, h);
      if (of.partial != nullptr) of.partial += h * block_.partial_head;
      end_tile_head(call_, of, scratch_, scratch_.heads[h]);
    }
  }

 private:
  void compute_scores(Tiles& tiles) {
    tiles.configure(score_tiles<R>);
    for (int64_t key = span_.begin; key < span_.end; key += step_keys) {
      LinesAhead ahead = lines_ahead(key, block_.heads * scratch_.qk_steps * fetches_per_qk_step);
      for (int h = 0; h < block_.heads; ++h)
        tile_row_scores<R>(tiles, k_rows(key, h), scratch_.heads[h].q, scratch_.qk_steps, ahead, x_of(h, key));
    }
  }

  // Weights are computed a turn before they are used: what was just stored is not yet where tiles are loaded from.
  void add_values(Tiles& tiles) {
    LinesAhead ahead;
    weigh(chunk_.begin, 0, 0, ahead);
    int turn = 0;
    for (int64_t key = chunk_.begin; key < chunk_.end; key += step_keys) {
      ahead = lines_ahead(key + span_.end - span_.begin,
                          block_.heads * (scratch_.v_strips * fetches_per_strip + fetches_per_weights));
      for (int h = 0; h < block_.heads; ++h, ++turn) {
        if (h + 1 < block_.heads)
          weigh(key, h + 1, turn + 1, ahead);
        else if (key + step_keys < chunk_.end)
          weigh(key + step_keys, 0, turn + 1, ahead);
        const TileRowHead& head = scratch_.heads[h];
        tile_row_values<R>(tiles, scratch_, v_rows(key, h), scratch_.weights[turn % 2],
                           key == chunk_.begin ? head.out : head.next_out, head.next_out, ahead);
      }
    }
    const int64_t steps = (chunk_.end - chunk_.begin) / step_keys;
    for (int h = 0; h < block_.heads; ++h)
      end_chunk(tiles, call_, scratch_, scratch_.heads[h], x_of(h, chunk_.begin), steps,
                [&](int64_t step) { return v_rows(chunk_.begin + step * step_keys, h); });
  }

  void weigh(int64_t key, int h, int turn, LinesAhead& ahead) {
    TileRowHead& head = scratch_.heads[h];
    float* const x = x_of(h, key);
    if (key == chunk_.begin) {
      if (!plain_ || key < seen_by_all_.begin || chunk_.end > seen_by_all_.end)
        shape_tile_rows<R>(call_, block_of_head(block_, h), key, chunk_.end, x, scratch_.bias);
      raise_largest(call_, scratch_, head, x, (chunk_.end - key) * R);
    }
    weigh_step<R>(call_, head, x, ahead, scratch_.weights[turn % 2]);
  }

  // What is to be fetched during the step at `key`. Values come after the keys of their span, as if they were keys
  // after those; after the last ones come keys that the same thread most likely reads next.
  LinesAhead lines_ahead(int64_t key, int64_t calls) const {
    const int64_t span = span_.end - span_.begin;
    key += steps_ahead_ * step_keys;
    if (key < span_.end) return lines_of_k(key, calls);
    if (key < span_.end + span) return lines_of_v(key - span, calls);
    return key - span < block_.seq_k ? lines_of_k(key - span, calls) : LinesAhead();
  }
  LinesAhead lines_of_k(int64_t key, int64_t calls) const {
    return LinesAhead(k_at(key), p_.k.row * 2, p_.k.head * 2, p_.dim_qk * 2, keys_at(key), block_.heads, calls);
  }
  LinesAhead lines_of_v(int64_t key, int64_t calls) const {
    return LinesAhead(v_at(key), p_.v.row * 2, p_.v.head * 2, p_.dim_v * 2, keys_at(key), block_.heads, calls);
  }

  float* x_of(int h, int64_t key) const { return scratch_.heads[h].x + (key - span_.begin) * R; }
  const char* k_at(int64_t key) const {
    return element(call_.operands->in(Operand::k), p_.dtype, key_offset(p_, p_.k, block_, key));
  }
  const char* v_at(int64_t key) const {
    return element(call_.operands->in(Operand::v), p_.dtype, key_offset(p_, p_.v, block_, key));
  }
  int64_t keys_at(int64_t key) const { return smaller_of(step_keys, block_.seq_k - key); }
  StepRows k_rows(int64_t key, int h) const {
    return step_rows(k_at(key) + h * p_.k.head * 2, p_.k.row * 2, keys_at(key), p_.dim_qk, scratch_.copied);
  }
  StepRows v_rows(int64_t key, int h) const {
    return step_rows(v_at(key) + h * p_.v.head * 2, p_.v.row * 2, keys_at(key), p_.dim_v, scratch_.copied);
  }

  const Call& call_;
  const Block& block_;
  const Problem& p_;
  TileRowScratch<R> scratch_;
  int64_t begin_ = 0, end_ = 0, steps_ahead_ = 0;
  KeyRange seen_by_all_{0, 0}, span_{0, 0}, chunk_{0, 0};  // no call of a constructor that levels would share
  bool plain_ = false;
};

inline int most_rows_of_row_path(const Problem& p) {
  if (p.dtype != Dtype::bf16) return few_rows;
  return scale_is_within(p, most_scale_in_pairs) ? most_tile_rows : 0;
}

inline void forward_tile_rows(const Call& call, const Block& block, void* scratch) {
  if (call.problem->dtype != Dtype::bf16 || block.count < least_tile_rows) return forward_rows(call, block, scratch);
  const Arena memory(scratch);
  if (block.count <= 4) return TileRowTask<4>(call, block, memory).compute();
  if (block.count <= 8) return TileRowTask<8>(call, block, memory).compute();
  TileRowTask<most_tile_rows>(call, block, memory).compute();
}

// For any number of heads a task may have: with fewer, spans are longer.
inline size_t tile_rows_scratch_bytes(const Problem& p) {
  size_t bytes = 0;
  for (int heads = 1; heads <= smaller_of(p.heads_kv, max_task_heads); ++heads) {
    Arena arena(nullptr);
    const TileRowScratch<most_tile_rows> scratch(p, heads, arena);
    bytes = arena.used() > bytes ? arena.used() : bytes;
  }
  return bytes;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
