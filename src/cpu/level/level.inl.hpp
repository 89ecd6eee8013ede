// The table of a level. A translation unit of a level defines ATTUNE_LEVEL, includes this, and is compiled with the
// flags of its instruction set (CMakeLists.txt).
#pragma once

#include "cpu/level/block.inl.hpp"
#include "cpu/level/gradients.inl.hpp"
#include "cpu/level/level.hpp"
#include "cpu/level/rows.inl.hpp"
#include "cpu/level/unfused.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

size_t scratch_bytes(const Problem& p) {
  const size_t sizes[] = {block_scratch_bytes<float>(p), block_scratch_bytes<double>(p), rows_scratch_bytes<float>(p),
                          rows_scratch_bytes<double>(p)};
  size_t largest = 0;
  for (const size_t size : sizes) largest = size > largest ? size : largest;
  return largest;
}

double multiply_add_rounds(int64_t rounds) {
  constexpr int chains = vector_bytes == 64 ? 16 : 12;
  Floats sum[chains];
  for (int i = 0; i < chains; ++i) sum[i] = splat(static_cast<float>(i));
  const Floats factor = splat(0.999f), term = splat(0.001f);
  for (int64_t round = 0; round < rounds; ++round) {
    ATTUNE_UNROLL
    for (int i = 0; i < chains; ++i) sum[i] = multiply_add(sum[i], factor, term);
  }
  Floats total{};
  for (int i = 0; i < chains; ++i) total += sum[i];
  // Without a use of the result the loop would be removed.
  asm volatile("" : : "m"(total));
  return 2.0 * chains * width * static_cast<double>(rounds);
}

float sum_memory(const float* data, int64_t count) {
  constexpr int streams = 8;
  Floats sum[streams] = {};
  int64_t i = 0;
  for (; i + streams * width <= count; i += streams * width) {
    ATTUNE_UNROLL
    for (int s = 0; s < streams; ++s) sum[s] += load(data + i + s * width);
  }
  float total = 0;
  for (const Floats& s : sum) total += sum_of<float>(s);
  for (; i < count; ++i) total += data[i];
  return total;
}

int vector_task_rows(const Problem&) { return block_rows; }
int vector_few_rows([[maybe_unused]] const Problem& p) {
#if defined(ATTUNE_PAIRS_IN_VECTORS)
  if (p.dtype == Dtype::bf16 && !scale_is_within(p, most_scale_in_pairs)) return 0;
#endif
  return few_rows;
}
bool packs_itself(const Problem&) { return false; }

constexpr Level level_table(const char* name, bool has_fused_multiply_add) {
  Level level{};
  level.name = name;
  level.tile_rows = tile_rows;
  level.fused_multiply_add = has_fused_multiply_add;
  level.task_rows = vector_task_rows;
  level.few_rows = vector_few_rows;
  level.scratch_bytes = scratch_bytes;
  level.forward_block = forward_block;
  level.forward_rows = forward_rows;
  level.join = join;
  level.needs_packed = packs_itself;
  level.packed_bytes = vector_step_bytes;
  level.pack = pack_vector_step;
  level.unfused_scores = unfused_scores;
  level.unfused_softmax = unfused_softmax;
  level.unfused_values = unfused_values;
  level.floats_of_row = floats_of_row;
  level.elements_of_row = elements_of_row;
  level.transpose_block = transpose_block;
  level.dot_of_rows = dot_of_rows;
  level.multiply_blocks = multiply_blocks;
  level.weights_and_gradients = weights_and_gradients;
  level.multiply_add = multiply_add_rounds;
  level.sum = sum_memory;
  return level;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
