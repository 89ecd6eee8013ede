// One instruction-set level of the CPU backend, seen from outside: a table of functions over plain data.
//
// The same source (the .inl.hpp files here) is compiled once per level, each time in a translation unit of its own with
// its own compiler flags. A function that two of them share by name would be merged by the linker, and a machine
// without AVX-512 could end up running the AVX-512 copy. So everything in those files has internal linkage, calls no
// inline function or template of other headers, and meets the rest of the library only through this table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/problem.hpp"
#include "core/visibility.hpp"

namespace attune::cpu {

// What is constant during one attune_forward. With s = q.k (q negated where the scale is negative):
//   no softcap: x = s * score_factor + bias * bias_factor
//   softcap:    x = cap * tanh(s * score_factor * cap_factor) + bias
// A score is x * unit, and a weight exp2((x - largest x) * (exp2_high + exp2_low)). Keeping a large scale out of x
// keeps x finite.
struct Call {
  const Problem* problem = nullptr;
  const Operands* operands = nullptr;
  int64_t group = 1;   // query heads of a KV head
  float q_factor = 1;  // sign of the scale
  float score_factor = 1, bias_factor = 1, cap = 0, cap_factor = 0;
  float exp2_high = 0, exp2_low = 0;
  double unit = 1;
};
Call make_call(const Problem& problem, const Operands& operands);

// What one task computes. The rows of all query heads that share a KV head are stacked: stacked row i is row
// i / group of the sequence, of head head_kv * group + i % group.
struct Block {
  int64_t batch = 0, head_kv = 0;
  int heads = 1;                             // of the row path: KV heads from head_kv on, the rows of each
  int64_t first_row_q = 0, first_row_k = 0;  // of the sequence, as in Sequence
  int64_t seq_q = 0, seq_k = 0;              // in use; rows and keys from here on are not
  int64_t first = 0;                         // stacked row
  int count = 0;
  const KeyRange* visible = nullptr;  // per stacked row from `first`
  const char* packed = nullptr;       // this KV head's keys as the level packed them (Level::pack), if it does
  // Rows of K and V that this thread will pack next, worth fetching meanwhile.
  const char *next_k = nullptr, *next_v = nullptr;
  int64_t next_count = 0;
  // Not NULL: results go here, to be joined: partial_header + dim_v per row, heads partial_head apart.
  double* partial = nullptr;
  int64_t partial_head = 0;
};

// Rows a task of the block path takes in vectors, and at most in any level; with fewer tasks than wanted, fewer rows.
constexpr int block_rows = 192;
constexpr int least_task_rows = 96;
constexpr int max_task_rows = 256;
// KV heads a task of the row path takes at most.
constexpr int max_task_heads = 16;
// Tasks begin and end at multiples of this many keys, so that results do not depend on the decomposition.
constexpr int64_t key_alignment = 128;

// Keys that a level packs at a time.
constexpr int64_t packed_keys = 32;

inline constexpr int64_t partial_header = 3;  // RowTotals; then dim_v sums

// The state of the unfused form between its three steps: for each tile of tile_rows stacked rows a full score matrix.
struct UnfusedTile {
  int count = 0;             // rows in the tile
  float* scores = nullptr;   // seq_k x tile_rows
  float* largest = nullptr;  // tile_rows
  double* sums = nullptr;    // tile_rows
};

// Blocks of floats, whose rows are padded with zeros to a multiple of so many.
constexpr int64_t float_block_lanes = 16;

// to[m][n] = (add ? to[m][n] : 0) + sum over k of a[m * a_row + k * a_depth] * b[k][n].
struct BlockProduct {
  const float* a = nullptr;
  int64_t a_row = 0, a_depth = 0;
  const float* b = nullptr;
  int64_t b_pitch = 0;
  float* to = nullptr;
  int64_t to_pitch = 0;
  int64_t rows = 0, columns = 0, depth = 0;  // columns: full lanes
  bool add = false;
};

// A row of scores on the way back. With s = q.k, x = scale * s, capped, plus the bias, and weight p = exp(x - lse):
// the gradient of x is p * (dp - delta), and that of the scaled product the same times the cap's slope.
struct GradientRow {
  float scale = 1, cap = 0, lse = 0, delta = 0;
  const float* bias = nullptr;
  bool of_products = true;  // gradients of scale * s, not of x
};

struct Level {
  const char* name;
  int tile_rows;  // stacked rows of one register tile
  bool fused_multiply_add;

  // Both paths: any number of keys, at most task_rows or few_rows rows. Up to few_rows, the row path is the better one.
  int (*task_rows)(const Problem&);
  int (*few_rows)(const Problem&);
  size_t (*scratch_bytes)(const Problem&);
  void (*forward_block)(const Call&, const Block&, void* scratch);
  void (*forward_rows)(const Call&, const Block&, void* scratch);
  // Joins `parts` partial results that lie `stride` doubles apart.
  void (*join)(const Call&, const Block&, const double* parts, int64_t count, int64_t stride);

  // The keys of a KV head as the block path wants them, made once before its tasks: packed_bytes for each packed_keys
  // keys, by pack() from the `count` keys at `from` (the block has no rows). What was not made, a task makes for
  // itself, unless it needs_packed.
  bool (*needs_packed)(const Problem&);
  size_t (*packed_bytes)(const Problem&);
  void (*pack)(const Call&, const Block&, int64_t from, int64_t count, char* to);

  // The three steps of the unfused form, for one tile.
  void (*unfused_scores)(const Call&, const Block&, int64_t seq_k, const UnfusedTile&, void* scratch);
  void (*unfused_softmax)(const Call&, int64_t seq_k, const UnfusedTile&);
  void (*unfused_values)(const Call&, const Block&, int64_t seq_k, const UnfusedTile&, void* scratch);

  // The gradients: rows of a tensor as floats and back, times a factor; the transpose of a block; and what is computed
  // with them. Counts are rounded up to full lanes.
  void (*floats_of_row)(const void* data, Dtype dtype, int64_t first, int64_t dim, float* to);
  void (*elements_of_row)(const float* from, float factor, void* data, Dtype dtype, int64_t first, int64_t dim);
  void (*transpose_block)(const float* from, int64_t from_pitch, int64_t rows, int64_t columns, float* to,
                          int64_t to_pitch);
  float (*dot_of_rows)(const float* a, const float* b, int64_t dim);
  void (*multiply_blocks)(const BlockProduct&);
  // s: q.k, then the weights; dp: dout.v, then the gradients.
  void (*weights_and_gradients)(const GradientRow&, float* s, float* dp, int64_t count);

  // For measuring: float32 multiply-adds in registers, returning how many operations that were; the same of products of
  // bf16 pairs in vectors, or NULL; a sum over memory.
  double (*multiply_add)(int64_t rounds);
  double (*multiply_pairs)(int64_t rounds);
  float (*sum)(const float* data, int64_t count);

  // NULL, or tries the instructions that a machine may announce and not have. May raise SIGILL.
  bool (*works)();
};

extern const Level portable_level;
#if defined(__x86_64__)
extern const Level avx2_level;
extern const Level avx512_level;
extern const Level avx512bf16_level;
extern const Level amx_level;
#endif

}  // namespace attune::cpu
