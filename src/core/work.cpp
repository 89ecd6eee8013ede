// How much useful work attention is, in closed form.
#include <algorithm>
#include <cstdint>

#include "core/operation.hpp"
#include "kernels/attention/visibility.hpp"

namespace attune {
namespace {

__extension__ typedef __int128 Count;  // extents go up to 2^48, so counts of scores do not fit in 64 bits

// Sum of clamp(t, 0, limit) for t = 0 .. end-1.
Count clamped_sum_to(int64_t end, int64_t limit) {
  if (end <= 0) return 0;
  const Count rising = std::min(end, limit);
  return rising * (rising - 1) / 2 + static_cast<Count>(limit) * std::max<int64_t>(end - limit, 0);
}

// Sum over rows 0 .. rows-1 of the number of keys below first + row.
Count keys_below(int64_t first, int64_t rows, int64_t keys) {
  return clamped_sum_to(first + rows, keys) - clamped_sum_to(first, keys);
}

// Distinct elements behind broadcast strides.
double distinct(const attune_score_strides& strides, const Problem& problem) {
  const auto along = [](int64_t stride, int64_t extent) {
    return static_cast<double>(stride == 0 ? std::min<int64_t>(extent, 1) : extent);
  };
  return along(strides.batch, problem.batch) * along(strides.head, problem.heads_q) *
         along(strides.query, problem.seq_q) * along(strides.key, problem.seq_k);
}

}  // namespace

double visible_scores(const Problem& problem, int64_t seq_q, int64_t seq_k) {
  // Both ends of what a row sees move by one from row to row, and the end never lies before the begin; so each end can
  // be summed on its own.
  const auto band = device::band_of<int64_t>(visibility_of(problem), seq_q, seq_k);
  return static_cast<double>(keys_below(band.upper, seq_q, seq_k) - keys_below(band.lower, seq_q, seq_k));
}

double visible_scores(const Problem& problem) {
  return static_cast<double>(problem.batch) * static_cast<double>(problem.heads_q) *
         visible_scores(problem, problem.seq_q, problem.seq_k);
}

double attention_flops(const Problem& problem) {
  return visible_scores(problem) * 2.0 * static_cast<double>(problem.dim_qk + problem.dim_v);
}

double attention_bytes(const Problem& problem) {
  const auto band = device::band_of<int64_t>(visibility_of(problem), problem.seq_q, problem.seq_k);
  const auto keys = static_cast<double>(std::max<int64_t>(band.end(problem.seq_q - 1) - band.begin(0), 0));

  const auto batch = static_cast<double>(problem.batch);
  const auto heads_q = static_cast<double>(problem.heads_q);
  const auto rows = batch * heads_q * static_cast<double>(problem.seq_q);
  const auto dims = static_cast<double>(problem.dim_qk + problem.dim_v);
  double bytes = (rows + batch * static_cast<double>(problem.heads_kv) * keys) * dims *
                 static_cast<double>(bytes_of(problem.dtype));
  if (problem.has(ATTUNE_LSE)) bytes += rows * 4;
  for (const OperandRow& row : operand_rows()) {
    if (!has_operand(problem, row)) continue;
    const auto element = static_cast<double>(element_bytes(problem, row));
    if (row.form == Form::heads) bytes += heads_q * element;
    if (row.form == Form::scores) bytes += distinct(problem.*row.score_strides, problem) * element;
  }
  return bytes;
}

}  // namespace attune
