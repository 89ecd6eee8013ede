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

#include "cpu/level/rows.inl.hpp"
#include "cpu/level/tile_pack_bf16.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// A single row has nothing to gain: its products in vectors are as quick as memory.
constexpr int least_tile_rows = 2;
constexpr int most_tile_rows = tile_side;
// Of the 32 rows of memory to be fetched per step, as many belong to each step of weights where a chunk has weights to
// compute, and the others to values.
constexpr int64_t fetches_per_weights = 6;

// The tiles, by what they hold.
enum RowTile { out_low, out_high, weights_tile, first_operand, second_operand, queries, scores_low, scores_high };
// Tiles with R rows or R columns are quicker to load and to store than full ones.
template <int R>
constexpr TileConfig row_tiles = [] {
  TileConfig config;
  for (const int t : {out_low, out_high, weights_tile}) config.rows[t] = R;
  for (const int t : {queries, scores_low, scores_high}) config.bytes_per_row[t] = R * sizeof(float);
  return config;
}();

// Keys in a vector of scores.
template <int R>
constexpr int vector_keys = width / R;
// Pairs of keys of the second product, 16 a step, come out of the transposition of weights in this order: pair (j, c)
// has the keys 2 * vector_keys * j + c and vector_keys later.
template <int R>
constexpr int64_t place_of_pair(int64_t j, int64_t c) {
  return j / 4 * 4 * vector_keys<R> + c * 4 + j % 4;
}

// The state of one KV head.
struct TileRowHead {
  char* q = nullptr;         // steps of 32 channels x 16 pairs x R rows
  float* x = nullptr;        // key_alignment x R
  char* weights = nullptr;   // steps of keys x R rows x 16 pairs
  float* out = nullptr;      // strips of 32 columns x 2 tiles x R rows x 16
  float* special = nullptr;  // R rows x columns in order: sums of what the tile unit cannot add up
  bool has_special = false;
  // Lanes as in a vector of scores. A row's largest score is the same in all of its lanes; sums are to be added.
  Floats largest, total, rounded_total;
};

template <int R>
struct TileRowScratch {
  TileRowHead heads[max_task_heads];
  int64_t qk_steps = 0, v_strips = 0;
  float* bias = nullptr;   // key_alignment x R
  char* copied = nullptr;  // a step of K or V that cannot be read in place
  char* values[2] = {};    // two strips of V: 2 tiles each
  float* out_row = nullptr;

  TileRowScratch(const Problem& p, int count, Arena& arena) {
    qk_steps = round_up(p.dim_qk, step_channels) / step_channels;
    v_strips = round_up(p.dim_v, 2 * tile_side) / (2 * tile_side);
    const int64_t columns = v_strips * 2 * tile_side;
    for (char*& strip : values) strip = arena.take<char>(2 * tile_bytes);
    copied = arena.take<char>(step_keys * larger_of(qk_steps, v_strips) * tile_row_bytes);
    if ((p.features & ATTUNE_BIAS) != 0) bias = arena.take<float>(key_alignment * R);
    out_row = arena.take<float>(columns);
    for (TileRowHead* head = heads; head < heads + count; ++head) {
      head->q = arena.take<char>(qk_steps * R * tile_row_bytes);
      head->x = arena.take<float>(key_alignment * R);
      head->weights = arena.take<char>(key_alignment / step_keys * R * tile_row_bytes);
      head->out = arena.take<float>(columns * R);
      head->special = arena.take<float>(columns * R);
    }
  }
};

template <int R>
void begin_tile_head(const Call& call, const Block& block, const TileRowScratch<R>& scratch, TileRowHead& head) {
  const Problem& p = *call.problem;
  head.has_special = false;
  head.largest = splat(-float_infinity);
  head.total = head.rounded_total = Floats{};
  for (int64_t i = 0; i < scratch.v_strips * 2 * tile_side * R; i += width) store(head.out + i, Floats{});
  const uint32_t sign = call.q_factor < 0 ? 0x80008000u : 0;
  for (int64_t step = 0; step < scratch.qk_steps; ++step) {
    Words rows[tile_side] = {};
    for (int i = 0; i < R && i < block.count; ++i) {
      const StackedRow at = stacked_row(call, block, i);
      if (at.row >= block.seq_q || call.q_factor == 0) continue;
      const char* const from = element(call.args->q, p.dtype, q_offset(p, p.q, block, at));
      rows[i] = load_pairs(from + step * tile_row_bytes, p.dim_qk - step * step_channels) ^ sign;
    }
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

// x = K Q^T of a step of keys. `fetches`: for each step of channels, twice.
template <int R>
[[gnu::noinline]] void tile_row_scores(Tiles& tiles, StepRows k, const char* q, int64_t qk_steps, RowsAhead& ahead,
                                       int64_t fetches, float* x) {
  constexpr int64_t pitch = R * sizeof(float);
  tiles.zero<scores_low>();
  tiles.zero<scores_high>();
  for (int64_t step = 0; step < qk_steps; ++step) {
    tiles.load<queries>(q + step * R * tile_row_bytes, pitch);
    tiles.load<first_operand>(k.at + step * tile_row_bytes, k.pitch);
    tiles.multiply_add<scores_low, first_operand, queries>();
    ahead.fetch(fetches);
    tiles.load<second_operand>(k.at + step * tile_row_bytes + tile_side * k.pitch, k.pitch);
    tiles.multiply_add<scores_high, second_operand, queries>();
    ahead.fetch(fetches);
  }
  tiles.store<scores_low>(x, pitch);
  tiles.store<scores_high>(x + tile_side * R, pitch);
}

// Softcap, bias, mask and ranges of the keys [from, to), a whole number of steps.
template <int R>
[[gnu::noinline]] void shape_tile_rows(const Call& call, const Block& block, int64_t from, int64_t to, float* x,
                                       float* bias) {
  const Problem& p = *call.problem;
  const int64_t keys = smaller_of(to, block.seq_k) - from;
  const bool has_bias = (p.features & ATTUNE_BIAS) != 0;
  const auto in_use = [&](int r) { return stacked_row(call, block, r).row < block.seq_q; };
  if (has_bias) {
    for (int64_t i = 0; i < (to - from) * R; i += width) store(bias + i, Floats{});
    for (int r = 0; r < block.count; ++r)
      if (in_use(r)) load_bias(call, block, r, from, keys, bias + r, R);
  }
  finish_scores(call, x, has_bias ? bias : nullptr, (to - from) * R);
  if ((p.features & ATTUNE_MASK) != 0) {
    for (int r = 0; r < block.count; ++r)
      if (in_use(r)) apply_mask(call, block, r, from, keys, x + r, R);
  }
  for (int r = 0; r < block.count; ++r) {
    const KeyRange range = block.visible[r];
    for (int64_t key = from; key < smaller_of(range.begin, to); ++key) x[(key - from) * R + r] = -float_infinity;
    for (int64_t key = larger_of(range.end, from); key < to; ++key) x[(key - from) * R + r] = -float_infinity;
  }
}

// The largest of each row's lanes, in all of them.
template <int R>
Floats largest_of_rows(Floats v) {
  if constexpr (R <= 8)
    v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  if constexpr (R <= 4)
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  return v;
}

// Makes `top` the largest scores, and what was summed so far relative to them.
template <int R>
[[gnu::noinline]] void raise_tile_rows(const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head,
                                       Floats top) {
  const Floats factor =
      exp2_of<float>(head.largest - reference_of(top), splat(call.exp2_high), splat(call.exp2_low)).part[0];
  head.largest = top;
  head.total *= factor;
  head.rounded_total *= factor;
  const int64_t tiles = scratch.v_strips * 2;
  for (int r = 0; r < R; ++r) {
    const Floats of_row = splat(factor[r]);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      float* const out = head.out + (tile * R + r) * tile_side;
      store(out, load(out) * of_row);
      if (!head.has_special) continue;
      float* const special = head.special + (r * tiles + tile) * tile_side;
      store(special, load(special) * of_row);
    }
  }
}

// Pairs of weights, one word each, to rows of 16 pairs in the order of place_of_pair.
inline void transpose_weights(Words (&u)[4], char* to) {
  const Words a = low_words(u[0], u[1]), b = high_words(u[0], u[1]);
  const Words c = low_words(u[2], u[3]), d = high_words(u[2], u[3]);
  store_bytes(to, low_pairs(a, c));
  store_bytes(to + tile_row_bytes, high_pairs(a, c));
  store_bytes(to + 2 * tile_row_bytes, low_pairs(b, d));
  store_bytes(to + 3 * tile_row_bytes, high_pairs(b, d));
}
inline void transpose_weights(Words (&u)[8], char* to) {
  Words quads[2][4];
  ATTUNE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Words* const of = u + half * 4;
    const Words a = low_words(of[0], of[1]), b = high_words(of[0], of[1]);
    const Words c = low_words(of[2], of[3]), d = high_words(of[2], of[3]);
    quads[half][0] = low_pairs(a, c);
    quads[half][1] = high_pairs(a, c);
    quads[half][2] = low_pairs(b, d);
    quads[half][3] = high_pairs(b, d);
  }
  ATTUNE_UNROLL
  for (int r = 0; r < 4; ++r) {
    store_bytes(to + r * tile_row_bytes, even_quads(quads[0][r], quads[1][r]));
    store_bytes(to + (r + 4) * tile_row_bytes, odd_quads(quads[0][r], quads[1][r]));
  }
}
inline void transpose_weights(Words (&u)[16], char* to) { transpose(u, to); }

// The weights of `steps` steps of keys, from x. O is the mean by the weights rounded to bf16, the LSE is that of the
// weights before.
template <int R>
[[gnu::noinline]] void weigh_tile_rows(const Call& call, const TileRowScratch<R>& scratch, TileRowHead& head,
                                       int64_t steps, RowsAhead& ahead) {
  constexpr int step_vectors = step_keys / vector_keys<R>;
  constexpr int chains = 4;
  static_assert(step_vectors % chains == 0);
  const float* x = head.x;
  Floats tops[chains] = {head.largest, head.largest, head.largest, head.largest};
  for (int64_t i = 0; i < steps * step_vectors; i += chains) {
    ATTUNE_UNROLL
    for (int chain = 0; chain < chains; ++chain) tops[chain] = larger(load(x + (i + chain) * width), tops[chain]);
  }
  const Floats top = largest_of_rows<R>(larger(larger(tops[0], tops[1]), larger(tops[2], tops[3])));
  if (any(top > head.largest)) raise_tile_rows(call, scratch, head, top);

  const Floats reference = reference_of(top), high = splat(call.exp2_high), low = splat(call.exp2_low);
  Floats even_total{}, odd_total{}, even_rounded{}, odd_rounded{};
  for (int64_t step = 0; step < steps; ++step, x += step_vectors * width) {
    Words pairs[step_vectors / 2];
    ATTUNE_UNROLL
    for (int j = 0; j < step_vectors / 2; ++j) {
      const Floats even = exp2_of<float>(load(x + 2 * j * width) - reference, high, low).part[0];
      const Floats odd = exp2_of<float>(load(x + (2 * j + 1) * width) - reference, high, low).part[0];
      even_total += even;
      odd_total += odd;
      const Words rounded_odd = (bits_as<Words>(odd) + 0x8000u) & 0xffff0000u;
      pairs[j] = (bits_as<Words>(even) + 0x8000u) >> 16 | rounded_odd;
      even_rounded += bits_as<Floats>(pairs[j] << 16);
      odd_rounded += bits_as<Floats>(rounded_odd);
    }
    transpose_weights(pairs, head.weights + step * R * tile_row_bytes);
    ahead.fetch(fetches_per_weights);
  }
  head.total += even_total + odd_total;
  head.rounded_total += even_rounded + odd_rounded;
}

// A strip of 32 columns of a step of values, two keys interleaved: pairs of 16 columns make one tile, those of the
// others the next. Within each 8 columns the first four are in the first tile. Returns whether there may be special
// values (a value of 0 looks like one); with `clean`, those become 0, and it returns whether there are any.
template <int R, bool clean>
bool interleave_strip(StepRows v, char* to) {
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  constexpr int n = vector_keys<R>;
  // Twice the bits drop the sign, and what is left of 2^-100 on, and finite, lies below `beyond`.
  constexpr uint16_t least = 2 * 0x0d80, beyond = 2 * 0x7f80 - least;
  __m512i worst = _mm512_setzero_si512();
  __mmask32 special = 0;
  const auto load_key = [&](const char* from) {
    AllHalves key = load_bytes<AllHalves>(from);
    if constexpr (clean) {
      const __mmask32 unfit = special_pairs(bits_as<Words>(key));
      special |= unfit;
      key = bits_as<AllHalves>(_mm512_maskz_mov_epi16(~unfit, bits_as<__m512i>(key)));
    } else {
      const AllHalves twice = key + key - least;
      worst = _mm512_maskz_max_epu16(~__mmask32{0}, worst, bits_as<__m512i>(twice));
    }
    return key;
  };
  for (int64_t j = 0; j < R; ++j, v.at += 2 * n * v.pitch) {
    ATTUNE_UNROLL
    for (int64_t c = 0; c < n; ++c) {
      const AllHalves a = load_key(v.at + c * v.pitch), b = load_key(v.at + (c + n) * v.pitch);
      char* const at = to + place_of_pair<R>(j, c) * tile_row_bytes;
      store_bytes(at, __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48,
                                              17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59));
      store_bytes(at + tile_bytes,
                  __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21,
                                          53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63));
    }
  }
  if constexpr (clean) return special != 0;
  return _mm512_cmpge_epu16_mask(worst, bits_as<__m512i>(AllHalves{} + beyond)) != 0;
}

// Adds weight times value for the special values of a strip, where the weight is not 0.
template <int R>
[[gnu::noinline]] void add_special_strip(const TileRowScratch<R>& scratch, TileRowHead& head, int64_t strip, StepRows v,
                                         const char* weights) {
  constexpr int n = vector_keys<R>;
  const int64_t columns = scratch.v_strips * 2 * tile_side;
  if (!head.has_special)
    for (int64_t i = 0; i < columns * R; i += width) store(head.special + i, Floats{});
  head.has_special = true;
  for (int64_t key = 0; key < step_keys; ++key) {
    const int64_t pair = place_of_pair<R>(key / (2 * n), key % n), second = key / n % 2;
    for (int64_t half = 0; half < 2; ++half) {
      const Floats loaded = load_as_floats<Dtype::bf16>(v.at + key * v.pitch + half * width * 2);
      const Ints unfit = is_special(loaded);
      if (!any(unfit)) continue;
      const Floats value = unfit ? loaded : Floats{};
      for (int64_t r = 0; r < R; ++r) {
        uint32_t word;
        __builtin_memcpy(&word, weights + r * tile_row_bytes + pair * 4, sizeof word);
        const auto weight = bits_as<float>(second == 0 ? word << 16 : word & 0xffff0000u);
        if (weight == 0) continue;
        float* const to = head.special + r * columns + (strip * 2 + half) * width;
        store(to, load(to) + weight * value);
      }
    }
  }
}

// One strip of the second product, to be done once another strip was interleaved: what was just stored is not yet where
// tiles are loaded from.
struct PendingStrip {
  const char* weights = nullptr;  // of a step, or NULL: those of the strip before
  float* out = nullptr;           // NULL: nothing to be done
  const char* values = nullptr;
};

template <int R>
void finish_strip(Tiles& tiles, PendingStrip& strip) {
  if (strip.out == nullptr) return;
  if (strip.weights != nullptr) tiles.load<weights_tile>(strip.weights, tile_row_bytes);
  tiles.load<out_low>(strip.out, tile_row_bytes);
  tiles.load<first_operand>(strip.values, tile_row_bytes);
  tiles.multiply_add<out_low, weights_tile, first_operand>();
  tiles.load<out_high>(strip.out + R * tile_side, tile_row_bytes);
  tiles.load<second_operand>(strip.values + tile_bytes, tile_row_bytes);
  tiles.multiply_add<out_high, weights_tile, second_operand>();
  tiles.store<out_low>(strip.out, tile_row_bytes);
  tiles.store<out_high>(strip.out + R * tile_side, tile_row_bytes);
  strip.out = nullptr;
}

// O += P V for a step of keys; the last strip stays pending.
template <int R>
[[gnu::noinline]] void tile_row_values(Tiles& tiles, const TileRowScratch<R>& scratch, TileRowHead& head, StepRows v,
                                       const char* weights, RowsAhead& ahead, int64_t fetches, PendingStrip& pending) {
  for (int64_t strip = 0; strip < scratch.v_strips; ++strip, v.at += tile_row_bytes) {
    char* const values = pending.values == scratch.values[0] ? scratch.values[1] : scratch.values[0];
    if (interleave_strip<R, false>(v, values)) [[unlikely]]
      if (interleave_strip<R, true>(v, values)) add_special_strip(scratch, head, strip, v, weights);
    ahead.fetch(fetches);
    finish_strip<R>(tiles, pending);
    pending = {strip == 0 ? weights : nullptr, head.out + strip * 2 * tile_side * R, values};
  }
}

// Ends the rows of a head.
template <int R>
void end_tile_head(const Call& call, const Block& block, const TileRowScratch<R>& scratch, const TileRowHead& head) {
  for (int r = 0; r < block.count; ++r) {
    for (int64_t strip = 0; strip < scratch.v_strips; ++strip) {
      const float* const out = head.out + (strip * 2 * R + r) * tile_side;
      const Floats a = load(out), b = load(out + R * tile_side);
      Floats first = __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      Floats second = __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      if (head.has_special) {
        const float* const special = head.special + (r * scratch.v_strips + strip) * 2 * tile_side;
        first += load(special);
        second += load(special + width);
      }
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

template <int R>
void forward_tile_rows_as(const Call& call, const Block& block, void* memory) {
  const Problem& p = *call.problem;
  Arena arena(memory);
  TileRowScratch<R> scratch(p, block.heads, arena);
  const auto block_of = [&](int h) {
    Block head = block;
    head.head_kv += h;
    return head;
  };
  for (int h = 0; h < block.heads; ++h) begin_tile_head(call, block_of(h), scratch, scratch.heads[h]);
  int64_t begin = INT64_MAX, end = 0;
  for (int r = 0; r < block.count; ++r) {
    const KeyRange& range = block.visible[r];
    if (range.begin >= range.end) continue;
    begin = smaller_of(begin, range.begin);
    end = larger_of(end, range.end);
  }
  end = smaller_of(round_up(end, step_keys), round_up(block.seq_k, step_keys));

  const int64_t k_pitch = p.k.row * 2, v_pitch = p.v.row * 2, k_head = p.k.head * 2, v_head = p.v.head * 2;
  const auto k_at = [&](int64_t key) { return element(call.args->k, p.dtype, key_offset(p, p.k, block, key)); };
  const auto v_at = [&](int64_t key) { return element(call.args->v, p.dtype, key_offset(p, p.v, block, key)); };
  const auto keys_at = [&](int64_t key) { return smaller_of(step_keys, block.seq_k - key); };
  const auto k_ahead = [&](int64_t key) {
    return key < end ? RowsAhead(k_at(key), k_pitch, k_head, p.dim_qk * 2, keys_at(key), block.heads)
                     : RowsAhead(nullptr, 0, 0, 0, 0, 1);
  };
  const auto v_ahead = [&](int64_t key) {
    return RowsAhead(v_at(key), v_pitch, v_head, p.dim_v * 2, keys_at(key), block.heads);
  };
  const auto share = [](int64_t fetches, int64_t of) { return (fetches + of - 1) / of; };
  const int64_t fetches_per_scores = share(step_keys, 2 * scratch.qk_steps);
  const int64_t fetches_per_strip = share(step_keys, scratch.v_strips);
  {
    Tiles tiles(row_tiles<R>);
    PendingStrip pending;
    for (int64_t from = begin / step_keys * step_keys; from < end;) {
      const int64_t next = smaller_of(end, (from / key_alignment + 1) * key_alignment);
      for (int64_t key = from; key < next; key += step_keys) {
        const int64_t after = key + step_keys;
        RowsAhead ahead = after < next ? k_ahead(after) : v_ahead(from);
        const char* k = k_at(key);
        for (int h = 0; h < block.heads; ++h, k += k_head)
          tile_row_scores<R>(tiles, step_rows(k, k_pitch, keys_at(key), p.dim_qk, scratch.copied), scratch.heads[h].q,
                             scratch.qk_steps, ahead, fetches_per_scores, scratch.heads[h].x + (key - from) * R);
      }
      const int64_t steps = (next - from) / step_keys;
      const int64_t fetches_left = share(larger_of(step_keys - steps * fetches_per_weights, 0), scratch.v_strips);
      for (int64_t key = from; key < next; key += step_keys) {
        const int64_t after = key + step_keys;
        RowsAhead ahead = after < next ? v_ahead(after) : k_ahead(next);
        const char* v = v_at(key);
        for (int h = 0; h < block.heads; ++h, v += v_head) {
          TileRowHead& head = scratch.heads[h];
          if (key == from) {
            shape_tile_rows<R>(call, block_of(h), from, next, head.x, scratch.bias);
            weigh_tile_rows<R>(call, scratch, head, steps, ahead);
          }
          tile_row_values<R>(tiles, scratch, head, step_rows(v, v_pitch, keys_at(key), p.dim_v, scratch.copied),
                             head.weights + (key - from) / step_keys * R * tile_row_bytes, ahead,
                             key == from ? fetches_left : fetches_per_strip, pending);
        }
      }
      finish_strip<R>(tiles, pending);
      from = next;
    }
  }
  for (int h = 0; h < block.heads; ++h) {
    Block of = block_of(h);
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
