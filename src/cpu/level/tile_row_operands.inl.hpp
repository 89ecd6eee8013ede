// What the row path on the tile unit (tile_rows.inl.hpp) multiplies, and the state of its rows.
#pragma once

#include "cpu/level/rows.inl.hpp"
#include "cpu/level/tile_pack_bf16.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// The tiles of the two products, by what they hold. Those with R rows or R columns are quicker to load and to store
// than full ones; `odd` ones are not used where they lie below `even` ones.
enum ScoreTile { scores_low, scores_high, queries, low_keys, high_keys };
enum ValueTile { out_even, out_odd, low_even, low_odd, high_even, high_odd, low_values, high_values };
// Whether the rows for odd columns lie below those for even ones in the same tile: one load, product and store for
// both.
template <int R>
constexpr bool odd_below_even = 2 * R <= tile_side;
template <int R>
constexpr TileConfig score_tiles = [] {
  TileConfig config;
  for (const int t : {scores_low, scores_high, queries}) config.bytes_per_row[t] = R * sizeof(float);
  return config;
}();
template <int R>
constexpr TileConfig value_tiles = [] {
  TileConfig config;
  for (const int t : {out_even, out_odd, low_even, low_odd, high_even, high_odd})
    config.rows[t] = odd_below_even<R> ? 2 * R : R;
  return config;
}();

// Keys whose scores are computed, of all heads of a task, before their values are added. To change the shapes of tiles
// in between takes hundreds of cycles, so that spans of fewer heads are longer.
inline int64_t keys_of_span(int64_t heads) { return key_alignment * larger_of(4 / heads, 1); }

// Weights of a step of keys: even, odd and again for the higher keys, R rows each.
template <int R>
constexpr int64_t weights_tile_bytes = R * tile_row_bytes;
template <int R>
constexpr int64_t weights_bytes = 4 * weights_tile_bytes<R>;

// The state of one KV head.
struct TileRowHead {
  char* q = nullptr;          // steps of 32 channels x 16 pairs x R rows
  float* x = nullptr;         // of a span: keys x R
  float* out = nullptr;       // strips of 32 columns x (even ones, odd ones) x R rows x 16
  float* next_out = nullptr;  // the same after the chunk at work; then they change places
  // Lanes as in a vector of scores. A row's largest score is the same in all of its lanes; sums are to be added.
  Floats largest, total, rounded_total;
};

template <int R>
struct TileRowScratch {
  TileRowHead heads[max_task_heads];
  int64_t qk_steps = 0, v_strips = 0, dim_v = 0;
  float* bias = nullptr;   // key_alignment x R
  char* copied = nullptr;  // a step of K or V that cannot be read in place
  char* weights[2] = {};   // of two steps of keys
  char* values = nullptr;  // a strip of V without its special values
  float* again = nullptr;  // a strip of sums
  float* out_row = nullptr;

  TileRowScratch(const Problem& p, int count, Arena& arena) {
    qk_steps = round_up(p.dim_qk, step_channels) / step_channels;
    v_strips = round_up(p.dim_v, 2 * tile_side) / (2 * tile_side);
    dim_v = p.dim_v;
    const int64_t columns = v_strips * 2 * tile_side;
    for (char*& step : weights) step = arena.take<char>(weights_bytes<R>);
    values = arena.take<char>(2 * tile_bytes);
    again = arena.take<float>(2 * tile_side * R);
    copied = arena.take<char>(step_keys * larger_of(qk_steps, v_strips) * tile_row_bytes);
    if ((p.features & ATTUNE_BIAS) != 0) bias = arena.take<float>(key_alignment * R);
    out_row = arena.take<float>(columns);
    for (TileRowHead* head = heads; head < heads + count; ++head) {
      head->q = arena.take<char>(qk_steps * R * tile_row_bytes);
      head->x = arena.take<float>(keys_of_span(count) * R);
      head->out = arena.take<float>(columns * R);
      head->next_out = arena.take<float>(columns * R);
    }
  }
};

template <int R>
void begin_tile_head(const Call& call, const Block& block, const TileRowScratch<R>& scratch, TileRowHead& head) {
  const int64_t dim = call.problem->dim_qk;
  head.largest = splat(-float_infinity);
  head.total = head.rounded_total = Floats{};
  for (int64_t i = 0; i < scratch.v_strips * 2 * tile_side * R; i += width) store(head.out + i, Floats{});
  const uint32_t sign = call.q_factor < 0 ? 0x80008000u : 0;
  for (int64_t step = 0; step < scratch.qk_steps; ++step) {
    Words rows[tile_side] = {};
    for (int i = 0; i < block.count; ++i)
      if (const char* const from = q_row(call, block, i); from != nullptr)
        rows[i] = load_pairs(from + step * tile_row_bytes, dim - step * step_channels) ^ sign;
    alignas(vector_bytes) char tile[tile_bytes];
    transpose(rows, tile);
    for (int64_t pair = 0; pair < tile_side; ++pair)
      __builtin_memcpy(head.q + (step * tile_side + pair) * R * 4, tile + pair * tile_row_bytes, R * 4);
  }
}

// A step of K or V as the products read it.
struct StepRows {
  const char* at;
  int64_t pitch;
};

// The `keys` rows at `from`, in place if there are 32 of full steps of columns; otherwise copied and filled up with
// zeros.
inline StepRows step_rows(const char* from, int64_t pitch, int64_t keys, int64_t dim, char* copied) {
  if (keys == step_keys && dim % step_channels == 0) return {from, pitch};
  const int64_t to_pitch = round_up(dim, step_channels) * 2;
  for (int64_t key = 0; key < step_keys; ++key)
    for (int64_t at = 0; at < to_pitch; at += tile_row_bytes)
      store_bytes(copied + key * to_pitch + at,
                  key < keys ? load_pairs(from + key * pitch + at, dim - at / 2) : Words{});
  return {copied, to_pitch};
}

// How often memory is fetched ahead: for each 32 channels of K, for each strip of V, and while its weights are
// computed. Memory that is asked for nothing in between is idle.
constexpr int64_t fetches_per_qk_step = 2;
constexpr int64_t fetches_per_strip = 3;
constexpr int64_t fetches_per_weights = 4;

// Fetches rows of K or V of all heads of a task in the order of memory, some lines at each of `calls` calls: many lines
// at once would hold up what is read meanwhile.
class LinesAhead {
 public:
  LinesAhead() = default;
  LinesAhead(const char* first, int64_t row_step, int64_t head_step, int64_t bytes, int64_t keys, int64_t heads,
             int64_t calls)
      : row_step_(row_step), head_step_(head_step), bytes_(bytes), keys_left_(keys), heads_(heads) {
    if (head_step_ == bytes_) {  // neighbours: one run of memory
      bytes_ *= heads_;
      heads_ = 1;
    }
    if (heads_ == 1 && row_step_ == bytes_) {
      bytes_ *= keys_left_;
      keys_left_ = 1;
    }
    heads_left_ = heads_;
    row_ = at_ = first;
    end_ = at_ + bytes_;
    const int64_t lines = keys_left_ * heads_ * ((bytes_ + line - 1) / line);
    lines_per_call_ = (lines + calls - 1) / calls;
  }
  void fetch() {
    const char* at = at_;
    for (int64_t lines = lines_per_call_; lines > 0;) {
      if (end_ - at >= 4 * line) {
        ATTUNE_UNROLL
        for (int i = 0; i < 4; ++i) __builtin_prefetch(at + i * line, 0, 2);
        at += 4 * line;
        lines -= 4;
      } else if (at < end_) {
        __builtin_prefetch(at, 0, 2);
        at += line;
        --lines;
      } else if (next_run()) {
        at = at_;
      } else {
        break;
      }
    }
    at_ = at;
  }

 private:
  static constexpr int64_t line = 64;

  bool next_run() {
    if (heads_left_ > 1) {
      --heads_left_;
      at_ = end_ - bytes_ + head_step_;
    } else if (keys_left_ > 1) {
      --keys_left_;
      heads_left_ = heads_;
      at_ = row_ += row_step_;
    } else {
      return false;
    }
    end_ = at_ + bytes_;
    return true;
  }

  const char *row_ = nullptr, *at_ = nullptr, *end_ = nullptr;  // of one head; where to go on, and up to where
  int64_t row_step_ = 0, head_step_ = 0, bytes_ = 0, keys_left_ = 0, heads_ = 0, heads_left_ = 0, lines_per_call_ = 0;
};

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
