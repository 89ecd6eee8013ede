// The block path: up to block_rows stacked rows against all their keys, by blocked online softmax. Keys are packed,
// once for all tasks or once for all register tiles of a task, and come in chunks.
#pragma once

#include "cpu/level/ahead.inl.hpp"
#include "cpu/level/level.hpp"
#include "cpu/level/memory.inl.hpp"
#include "cpu/level/products.inl.hpp"
#include "cpu/level/softmax.inl.hpp"
#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

constexpr int max_tiles = (block_rows + tile_rows - 1) / tile_rows;

// Sums over keys are kept as T: float, or double for float32 inputs, where the error of float sums over many keys would
// exceed that of everything else. Within a chunk of keys they are floats, and short enough for that (float_sum_keys).
constexpr int64_t chunk_keys = key_alignment;
static_assert(chunk_keys == 2 * float_sum_keys);

// Hands out pieces of one allocation; with no allocation it only counts.
class Arena {
 public:
  explicit Arena(void* data) : data_(static_cast<char*>(data)) {}
  template <typename T>
  T* take(int64_t count) {
    char* const at = data_ == nullptr ? nullptr : data_ + used_;
    used_ += static_cast<size_t>(round_up(count * static_cast<int64_t>(sizeof(T)), 64));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  char* data_;
  size_t used_ = 0;
};

constexpr int64_t row_pitch = max_head_dim + 16;  // of the temporary rows below

// How a step of packed_keys keys lies once it is packed, in floats: a header, strips of K, strips of V.
struct StepLayout {
  int64_t k_pitch = 0;  // from a strip of K to the next one
  int64_t v_strips = 0;

  explicit StepLayout(const Problem& p)
      : k_pitch(round_up(p.dim_qk, width) * strip_width), v_strips(round_up(p.dim_v, strip_width) / strip_width) {
    v_floats_ = round_up(p.dim_v, width) / strip_width * v_strip_pitch;  // packing writes full vectors
  }
  int64_t k_at() const { return 16; }
  int64_t v_at() const { return k_at() + packed_keys / strip_width * k_pitch; }
  int64_t step() const { return v_at() + v_floats_; }

 private:
  int64_t v_floats_ = 0;
};

// A register tile of rows and its state between chunks.
template <typename T>
struct Tile {
  int first = 0, count = 0, vecs = 0;
  int64_t begin = 0, end = 0;                // keys that some row sees
  int64_t common_begin = 0, common_end = 0;  // keys that every row sees
  int64_t ends[max_vecs] = {};               // of keys that some row of a vector, or of one before it, sees
  float* q = nullptr;                        // dim_qk, padded to vectors, x rows
  T* out = nullptr;                          // dim_v, padded to vectors, x rows; nothing before it has begun
  bool begun = false;
  float* largest = nullptr;
  T* sums = nullptr;
};

// Everything in the scratch memory of a task.
template <typename T>
struct Scratch {
  StepLayout layout;
  Tile<T> tiles[max_tiles];
  float* steps = nullptr;  // a chunk of packed keys, where they are not packed for all tasks
  float* x = nullptr;      // chunk_keys rows of tile_rows: scores, then weights
  float* bias = nullptr;   // chunk_keys x tile_rows
  T* rescale = nullptr;    // tile_rows
  T* out_rows = nullptr;   // a vector of rows of row_pitch, on their way from Tile::out to join()

  Scratch(const Problem& p, Arena& arena) : layout(p) {
    for (Tile<T>& tile : tiles) {
      tile.q = arena.take<float>(round_up(p.dim_qk, width) * tile_rows);
      tile.out = arena.take<T>(round_up(p.dim_v, width) * tile_rows);
      tile.largest = arena.take<float>(tile_rows);
      tile.sums = arena.take<T>(tile_rows);
    }
    steps = arena.take<float>(chunk_keys / packed_keys * layout.step());
    x = arena.take<float>(chunk_keys * tile_rows);
    if ((p.features & ATTUNE_BIAS) != 0) bias = arena.take<float>(chunk_keys * tile_rows);
    rescale = arena.take<T>(tile_rows);
    out_rows = arena.take<T>(lanes<T> * row_pitch);
  }
};

// Cuts a vector into strips that lie `pitch` apart.
inline void store_strips(Floats value, float* to, [[maybe_unused]] int64_t pitch) {
#if defined(__AVX512F__)
  static_assert(strip_width == 8);
  _mm256_storeu_ps(to, low_half(value));
  _mm256_storeu_ps(to + pitch, high_half(value));
#elif defined(__AVX2__)
  static_assert(strip_width == 4);
  _mm_storeu_ps(to, _mm256_castps256_ps128(value));
  _mm_storeu_ps(to + pitch, _mm256_extractf128_ps(value, 1));
#else
  static_assert(strip_width == width);
  store(to, value);
#endif
}

// Keys [from, from + keys), then zeros up to packed_keys, transposed and in strips.
inline void pack_k(const Call& call, const Block& block, int64_t from, int64_t keys, float* to, int64_t pitch) {
  const Problem& p = *call.problem;
  const char* k = element(call.operands->in(Operand::k), p.dtype, key_offset(p, p.k, block, from));
  for (int64_t first = 0; first < packed_keys; first += width, to += width / strip_width * pitch) {
    const char* rows[width];
    for (int64_t i = 0; i < width; ++i)
      rows[i] = first + i < keys ? element(k, p.dtype, (first + i) * p.k.row) : nullptr;
    for_each_column(rows, p.dtype, p.dim_qk, width * p.k.row,
                    [&](int64_t d, Floats column) { store_strips(column, to + d * strip_width, pitch); });
  }
}

// Values of keys [from, from + keys) in strips. True if all are finite.
inline bool pack_v(const Call& call, const Block& block, int64_t from, int64_t keys, float* to) {
  const Problem& p = *call.problem;
  const char* v = element(call.operands->in(Operand::v), p.dtype, key_offset(p, p.v, block, from));
  Floats not_finite{};
  with_dtype(p.dtype, [&]<Dtype dtype>() {
    for (int64_t i = 0; i < keys; ++i) {
      prefetch_row(v, dtype, (i + rows_ahead) * p.v.row, p.dim_v);
      for_each_vector<dtype>(v + i * p.v.row * size_of<dtype>, p.dim_v, [&](int64_t column, Floats value) {
        not_finite += value * 0.0f;
        store_strips(value, to + column / strip_width * v_strip_pitch + i * strip_width, v_strip_pitch);
      });
    }
  });
  return sum_of<float>(not_finite) == 0;
}

// One step, complete. The header says whether all values are finite.
inline void pack_step(const Call& call, const Block& block, const StepLayout& layout, int64_t from, int64_t keys,
                      float* to) {
  pack_k(call, block, from, keys, to + layout.k_at(), layout.k_pitch);
  to[0] = pack_v(call, block, from, keys, to + layout.v_at()) ? 1.0f : 0.0f;
}

// The packed keys from `chunk` on, which is a multiple of packed_keys, up to `end`: those of all tasks, or packed now.
template <typename T>
const float* steps_of(const Call& call, const Block& block, const Scratch<T>& scratch, int64_t chunk, int64_t end) {
  const int64_t step = scratch.layout.step();
  if (block.packed != nullptr) return reinterpret_cast<const float*>(block.packed) + chunk / packed_keys * step;
  float* to = scratch.steps;
  for (int64_t key = chunk; key < end; key += packed_keys, to += step)
    pack_step(call, block, scratch.layout, key, smaller_of(packed_keys, end - key), to);
  return scratch.steps;
}

// Which rows a tile has, and which keys they see; nothing summed yet.
template <typename T>
void begin_rows(const Block& block, int first, int count, int vecs, Tile<T>& tile) {
  tile.first = first;
  tile.count = count;
  tile.vecs = vecs;
  int64_t begin = INT64_MAX, end = 0, common_begin = 0, common_end = INT64_MAX;
  for (int lane = 0; lane < count; ++lane) {
    const KeyRange& range = block.visible[first + lane];
    const bool is_empty = range.begin >= range.end;
    common_begin = larger_of(common_begin, range.begin);
    common_end = smaller_of(common_end, range.end);
    begin = smaller_of(begin, is_empty ? INT64_MAX : range.begin);
    end = larger_of(end, is_empty ? 0 : range.end);
    tile.ends[lane / width] = end;
  }
  tile.begin = begin;
  tile.end = end;
  tile.common_begin = common_begin;
  tile.common_end = common_end;
  tile.begun = false;
  for (int lane = 0; lane < vecs * width; ++lane) {
    tile.largest[lane] = -float_infinity;
    tile.sums[lane] = 0;
  }
}

template <typename T>
void begin_tile(const Call& call, const Block& block, int first, int count, Tile<T>& tile) {
  begin_rows(block, first, count, (count + width - 1) / width, tile);
  const Problem& p = *call.problem;
  const int rows = tile.vecs * width;
  for (int lane = 0; lane < rows; lane += width) {
    const char* from[width];
    for (int i = 0; i < width; ++i) from[i] = lane + i < count ? q_row(call, block, first + lane + i) : nullptr;
    for_each_column(from, p.dtype, p.dim_qk, width * p.q.row / call.group,
                    [&](int64_t d, Floats column) { store(tile.q + d * rows + lane, column * call.q_factor); });
  }
}

// Hides from each row the keys outside its range: x is (keys x rows), its first key is `from`.
inline void apply_ranges(const KeyRange* visible, int count, int rows, int64_t from, int64_t keys, float* x) {
  alignas(vector_bytes) int32_t begin[tile_rows], end[tile_rows];
  for (int lane = 0; lane < rows; ++lane) {
    const KeyRange& range = visible[lane < count ? lane : count - 1];
    begin[lane] = static_cast<int32_t>(smaller_of(larger_of(range.begin - from, 0), keys));
    end[lane] = static_cast<int32_t>(smaller_of(larger_of(range.end - from, 0), keys));
  }
  for (int64_t k = 0; k < keys; ++k) {
    const Ints key = Ints{} + static_cast<int32_t>(k);
    for (int v = 0; v < rows; v += width) {
      float* at = x + k * rows + v;
      const Ints hidden = (key < load_bytes<Ints>(begin + v)) | (key >= load_bytes<Ints>(end + v));
      store(at, hidden ? splat(-float_infinity) : load(at));
    }
  }
}

// Hides the keys outside the rows' ranges, looking only where there may be some. True if there may be.
template <typename T>
bool hide_unseen(const Block& block, const Tile<T>& tile, int64_t from, int64_t keys, float* x) {
  const int rows = tile.vecs * width;
  const int64_t before = smaller_of(tile.common_begin - from, keys);
  const int64_t after = larger_of(tile.common_end - from, 0);
  if (before > 0) apply_ranges(block.visible + tile.first, tile.count, rows, from, before, x);
  if (after < keys)
    apply_ranges(block.visible + tile.first, tile.count, rows, from + after, keys - after, x + after * rows);
  return before > 0 || after < keys;
}

// Softcap, bias and mask of one tile.
template <typename T>
void shape_scores(const Call& call, const Block& block, const Tile<T>& tile, int64_t from, int64_t keys, float* x,
                  float* bias) {
  const Problem& p = *call.problem;
  const int rows = tile.vecs * width;
  const bool has_bias = (p.features & ATTUNE_BIAS) != 0;
  const bool has_mask = (p.features & ATTUNE_MASK) != 0;
  if (has_bias) {
    for (int lane = 0; lane < rows; ++lane) {
      if (lane < tile.count && stacked_row(call, block, tile.first + lane).row < block.seq_q)
        load_bias(call, block, tile.first + lane, from, keys, bias + lane, rows);
      else
        for (int64_t k = 0; k < keys; ++k) bias[k * rows + lane] = 0;
    }
  }
  finish_scores(call, x, has_bias ? bias : nullptr, keys * rows);
  if (has_mask) apply_mask_to_rows(call, block, tile.first, tile.count, from, keys, x, rows);
}

// The scores of keys from the `first` of `steps` on, a multiple of strip_width. Before each strip, before().
template <int Vecs, typename Before>
void score_steps(const float* steps, const StepLayout& layout, int64_t first, Ends<Vecs> ends, const float* q,
                 int64_t dim, float* x, const Before& before) {
  for (int64_t i = 0; i < ends[Vecs - 1]; i += strip_width) {
    const int64_t key = first + i, strip = key % packed_keys / strip_width;
    const float* k = steps + key / packed_keys * layout.step() + layout.k_at() + strip * layout.k_pitch;
    before();
    with_first_vector<Vecs>(
        ends, i, [&]<int first_vector>() { score_strip<Vecs, first_vector>(k, q, dim, x + i * Vecs * width); });
  }
}

inline Strip strip_from(const float* steps, const StepLayout& layout, int64_t first) {
  const int64_t at = first % packed_keys;
  return {steps + first / packed_keys * layout.step() + layout.v_at() + at * strip_width, first, layout.step()};
}

inline bool values_are_finite(const float* steps, const StepLayout& layout, int64_t first, int64_t keys) {
  for (int64_t i = first / packed_keys; i * packed_keys < first + keys; ++i)
    if (steps[i * layout.step()] == 0) return false;
  return true;
}

// Keys [from, to) of the packed chunk that begins at `chunk`, for one tile.
template <typename T, int Vecs>
void step_tile(const Call& call, const Block& block, Scratch<T>& scratch, Tile<T>& tile, const float* steps,
               int64_t chunk, int64_t from, int64_t to, TaskAhead& ahead) {
  const int64_t keys = to - from, first = from - chunk;
  const StepLayout& layout = scratch.layout;
  int64_t ends[Vecs];
  for (int v = 0; v < Vecs; ++v) ends[v] = larger_of(smaller_of(tile.ends[v], to) - from, 0);
  score_steps<Vecs>(steps, layout, first, ends, tile.q, call.problem->dim_qk, scratch.x, [&] { ahead.step(); });
  shape_scores(call, block, tile, from, keys, scratch.x, scratch.bias);
  const bool ranged = hide_unseen(block, tile, from, keys, scratch.x);
  const bool hidden = ranged || (call.problem->features & (ATTUNE_BIAS | ATTUNE_MASK)) != 0;
  online_softmax<T, Vecs>(call, scratch.x, ends, tile.largest, tile.sums, scratch.rescale);
  value_block<T, Vecs>(strip_from(steps, layout, first), layout.v_strips, ends, scratch.x, scratch.rescale, tile.begun,
                       hidden && !values_are_finite(steps, layout, first, keys), tile.out);
  tile.begun = true;
}

// Calls f with the number of vectors that `count` rows need, as a compile-time constant.
template <typename F>
void with_vecs(int count, F&& f) {
  static_assert(max_vecs == 3);
  if (count > 2 * width)
    f.template operator()<3>();
  else if (count > width)
    f.template operator()<2>();
  else
    f.template operator()<1>();
}

// A column of `width` sums times their rows' weights, 0 where that is 0.
inline Floats weighted(const float* sums, const float* weights) {
  const Floats weight = load(weights);
  return weight == 0.0f ? Floats{} : load(sums) * weight;
}
inline Floats weighted(const double* sums, const double* weights) {
  const auto half = [&](int at) {
    const Doubles weight = load(weights + at);
    return weight == 0.0 ? Doubles{} : load(sums + at) * weight;
  };
  return floats_from_doubles(half(0), half(double_width));
}

// Ends the `width` rows of a tile from `first` on.
template <typename T>
void end_rows(const Call& call, const Block& block, const Tile<T>& tile, int first) {
  const Problem& p = *call.problem;
  const int rows = tile.vecs * width;
  alignas(vector_bytes) T weights[width] = {};
  int64_t to[width];  // elements of O
  const int count = static_cast<int>(smaller_of(width, tile.count - first));
  for (int i = 0; i < count; ++i) {
    const StackedRow at = stacked_row(call, block, tile.first + first + i);
    const T sum = tile.sums[first + i];
    weights[i] = static_cast<T>(end_weights(call, block, at, {tile.largest[first + i], sum, sum}));
    to[i] = q_offset(p, p.o, block, at);
  }
  with_dtype(p.dtype, [&]<Dtype dtype>() {
    for (int64_t j = 0; j < p.dim_v; j += width) {
      Floats square[width];
      ATTUNE_UNROLL
      for (int c = 0; c < width; ++c) square[c] = weighted(tile.out + (j + c) * rows + first, weights);
      transpose(square);
      const auto store_row_of = [&](int i) {
        store_elements<dtype>(
            square[i], static_cast<char*>(call.operands->out(Operand::o)) + (to[i] + j) * size_of<dtype>, p.dim_v - j);
      };
      if (count == width) {  // known to the compiler, so that the rows stay in registers
        ATTUNE_UNROLL
        for (int i = 0; i < width; ++i) store_row_of(i);
      } else {
        for (int i = 0; i < count; ++i) store_row_of(i);
      }
    }
  });
}

// Ends all rows of a tile, or leaves them to join().
template <typename T>
void end_tile(const Call& call, const Block& block, T* out_rows, const Tile<T>& tile) {
  if (block.partial == nullptr) {
    for (int first = 0; first < tile.count; first += width) end_rows(call, block, tile, first);
    return;
  }
  const Problem& p = *call.problem;
  const int rows = tile.vecs * width;
  for (int lane = 0; lane < tile.count; lane += lanes<T>) {
    for (int64_t j = 0; j < p.dim_v; j += lanes<T>)
      transpose_square(tile.out + j * rows + lane, rows, out_rows + j, row_pitch);
    for (int i = 0; i < lanes<T> && lane + i < tile.count; ++i)
      finish_row(call, block, tile.first + lane + i, out_rows + i * row_pitch,
                 {tile.largest[lane + i], tile.sums[lane + i], tile.sums[lane + i]});
  }
}

template <typename T>
void forward_block_as(const Call& call, const Block& block, void* memory) {
  Arena arena(memory);
  Scratch<T> scratch(*call.problem, arena);
  int64_t begin = INT64_MAX, end = 0, strips = 0;
  int tiles = 0;
  for (int first = 0; first < block.count; first += tile_rows, ++tiles) {
    Tile<T>& tile = scratch.tiles[tiles];
    begin_tile(call, block, first, static_cast<int>(smaller_of(tile_rows, block.count - first)), tile);
    begin = smaller_of(begin, tile.begin);
    end = larger_of(end, tile.end);
    if (tile.begin < tile.end) strips += (tile.end - tile.begin) / strip_width + 1;
  }
  TaskAhead ahead(call, block, strips);
  // Chunks and their halves end at multiples of their size whatever row the task begins with.
  for (int64_t chunk = begin / float_sum_keys * float_sum_keys; chunk < end;) {
    const int64_t next = smaller_of(end, (chunk / chunk_keys + 1) * chunk_keys);
    const float* steps = steps_of(call, block, scratch, chunk, next);
    for (int i = 0; i < tiles; ++i) {
      Tile<T>& tile = scratch.tiles[i];
      const int64_t from = larger_of(chunk, tile.begin / strip_width * strip_width);
      const int64_t to = smaller_of(next, tile.end);
      if (from >= to) continue;
      with_vecs(tile.count,
                [&]<int Vecs>() { step_tile<T, Vecs>(call, block, scratch, tile, steps, chunk, from, to, ahead); });
    }
    chunk = next;
  }
  for (int i = 0; i < tiles; ++i) end_tile(call, block, scratch.out_rows, scratch.tiles[i]);
}

inline void forward_block(const Call& call, const Block& block, void* scratch) {
  if (call.problem->dtype == Dtype::f32)
    forward_block_as<double>(call, block, scratch);
  else
    forward_block_as<float>(call, block, scratch);
}

inline size_t vector_step_bytes(const Problem& p) { return static_cast<size_t>(StepLayout(p).step()) * sizeof(float); }
inline void pack_vector_step(const Call& call, const Block& block, int64_t from, int64_t keys, char* to) {
  pack_step(call, block, StepLayout(*call.problem), from, keys, reinterpret_cast<float*>(to));
}

template <typename T>
size_t block_scratch_bytes(const Problem& p) {
  Arena arena(nullptr);
  const Scratch<T> scratch(p, arena);
  return arena.used();
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
