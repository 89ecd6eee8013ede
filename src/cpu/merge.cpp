// attune_merge on the CPU: each output row is the parts' rows weighted by exp(lse_i - lse), in float64.
#include "cpu/merge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/convert.hpp"

namespace attune::cpu {
namespace {

constexpr int64_t rows_per_task = 64;
constexpr double infinity = std::numeric_limits<double>::infinity();

int64_t offset(const attune_strides& strides, int64_t b, int64_t row, int64_t head) {
  return b * strides.batch + row * strides.row + head * strides.head;
}

template <Dtype dtype>
void add_scaled(double* sum, double weight, const void* part, int64_t first, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] += weight * static_cast<double>(load_element(part, dtype, first + j));
}

void add_scaled(Dtype dtype, double* sum, double weight, const void* part, int64_t first, int64_t dim) {
  switch (dtype) {
    case Dtype::f16:
      return add_scaled<Dtype::f16>(sum, weight, part, first, dim);
    case Dtype::bf16:
      return add_scaled<Dtype::bf16>(sum, weight, part, first, dim);
    case Dtype::f32:
      return add_scaled<Dtype::f32>(sum, weight, part, first, dim);
  }
}

// Reads the row of every part before it writes, so an output may be one of the parts.
void merge_row(const attune_merge_desc& desc, const attune_merge_args& args, int64_t b, int64_t head, int64_t row) {
  std::array<double, ATTUNE_MERGE_MAX_PARTS> weights;
  std::array<double, max_head_dim> sum{};
  const int64_t lse_at = offset(desc.part_lse, b, row, head);
  double largest = -infinity;
  bool empty = true;
  for (int64_t i = 0; i < desc.parts; ++i) {
    weights[i] = args.part_lse[i][lse_at];
    if (weights[i] != -infinity) empty = false;
    if (weights[i] > largest) largest = weights[i];
  }
  double total = 0;
  if (!empty) {
    // The largest has weight 1 also where it is +inf, which exp(inf - inf) would not say.
    for (int64_t i = 0; i < desc.parts; ++i) {
      weights[i] = weights[i] == largest ? 1 : std::exp(weights[i] - largest);
      total += weights[i];
    }
    // A part without weight may hold anything, NaN included.
    for (int64_t i = 0; i < desc.parts; ++i)
      if (weights[i] != 0)
        add_scaled(static_cast<Dtype>(desc.part_dtype), sum.data(), weights[i] / total, args.part_o[i],
                   offset(desc.part_o, b, row, head), desc.dim);
  }
  const int64_t o_at = offset(desc.o, b, row, head);
  for (int64_t j = 0; j < desc.dim; ++j)
    store_element(args.o, static_cast<Dtype>(desc.dtype), o_at + j, static_cast<float>(sum[j]));
  if (args.lse != nullptr)
    args.lse[offset(desc.lse, b, row, head)] = static_cast<float>(empty ? -infinity : largest + std::log(total));
}

}  // namespace

void merge(const attune_merge_desc& desc, const attune_merge_args& args, Threads& threads) {
  const int64_t rows = desc.batch * desc.heads * desc.rows;
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  threads.parallel_for(tasks, [&](int64_t task) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t i = task * rows_per_task; i < end; ++i)
      merge_row(desc, args, i / (desc.heads * desc.rows), i / desc.rows % desc.heads, i % desc.rows);
  });
}

}  // namespace attune::cpu
