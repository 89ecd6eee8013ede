#include "core/checks.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "core/error.hpp"
#include "core/operands.hpp"

namespace attune {
namespace {

struct Step {
  const char* name;
  int64_t extent, stride;
};

uint64_t magnitude(int64_t stride) {
  return stride < 0 ? uint64_t{0} - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
}

void check_steps(const std::string& tensor, std::span<const Step> steps, int64_t dim, int64_t element_bytes) {
  // An extent of 0 counts as 1: contiguous strides of an empty tensor must fit too, and so must any stride in bytes,
  // which code may compute before it finds that there is nothing to step over.
  const auto counted = [](const Step& step) { return std::max<int64_t>(step.extent, 1); };
  int64_t elements = dim;
  for (const Step& step : steps)
    if (__builtin_mul_overflow(elements, counted(step), &elements))
      fail(ATTUNE_INVALID_ARGUMENT, "{} has an extent of {} along {}; it must have fewer than 2^63 elements in all",
           tensor, step.extent, step.name);
  int64_t reach = dim * element_bytes;
  for (const Step& step : steps) {
    int64_t bytes = 0;
    if (__builtin_mul_overflow(magnitude(step.stride), counted(step), &bytes) ||
        __builtin_mul_overflow(bytes, element_bytes, &bytes) || __builtin_add_overflow(reach, bytes, &reach))
      fail(ATTUNE_INVALID_ARGUMENT, "{}.{} is {}; with an extent of {} the offsets must stay below 2^63 bytes", tensor,
           step.name, step.stride, step.extent);
  }
}

// Sorts the steps. `innermost`: elements that each of them must step over.
void check_nested(const std::string& tensor, std::span<Step> steps, int64_t innermost) {
  std::ranges::sort(steps, {}, [](const Step& step) { return magnitude(step.stride); });
  uint64_t covered = static_cast<uint64_t>(innermost);
  for (const Step& step : steps) {
    if (step.extent == 1) continue;
    if (magnitude(step.stride) < covered)
      fail(ATTUNE_INVALID_ARGUMENT,
           "{}.{} is {}; it must be at least {} (or at most -{}), for no two elements of an output may share memory",
           tensor, step.name, step.stride, covered, covered);
    covered += magnitude(step.stride) * static_cast<uint64_t>(step.extent - 1);
  }
}

}  // namespace

int64_t checked_within(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.{} is {}; it must lie in {}..{}", name, value, low, high);
  return value;
}

Dtype checked_dtype(const char* name, attune_dtype value) {
  if (value != ATTUNE_F16 && value != ATTUNE_BF16 && value != ATTUNE_F32)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.{} is {}; it must be ATTUNE_F16 (0), ATTUNE_BF16 (1) or ATTUNE_F32 (2)", name,
         value);
  return static_cast<Dtype>(value);
}

DeviceKind checked_device(attune_device_kind kind, int32_t index) {
  if (kind != ATTUNE_CPU && kind != ATTUNE_CUDA)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.device_kind is {}; it must be ATTUNE_CPU (0) or ATTUNE_CUDA (1)", kind);
  if (kind == ATTUNE_CPU && index != 0)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.device_index is {}; it must be 0 on the CPU", index);
  if (index < 0) fail(ATTUNE_INVALID_ARGUMENT, "desc.device_index is {}; it must be 0 or greater", index);
  return static_cast<DeviceKind>(kind);
}

void check_reserved(const char* name, uint32_t value) {
  if (value != 0) fail(ATTUNE_INVALID_ARGUMENT, "{} is {}; it must be 0", name, value);
}

void check_pointer(const char* name, const void* pointer, int64_t alignment, const char* what) {
  if (pointer == nullptr) fail(ATTUNE_INVALID_ARGUMENT, "{} is NULL; it must point to {}", name, what);
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(alignment) != 0)
    fail(ATTUNE_INVALID_ARGUMENT, "{} is {}; its address must be a multiple of {} bytes", name, pointer, alignment);
}

void check_reach(const TensorShape& shape, const attune_strides& strides) {
  const std::array steps{Step{"batch", shape.batch, strides.batch}, Step{"row", shape.rows, strides.row},
                         Step{"head", shape.heads, strides.head}};
  check_steps(shape.name, steps, shape.dim, shape.element_bytes);
}

void check_reach(const std::string& name, const ScoreExtents& extents, int64_t element_bytes,
                 const attune_score_strides& strides) {
  const std::array steps{Step{"batch", extents.batch, strides.batch}, Step{"head", extents.heads, strides.head},
                         Step{"query", extents.queries, strides.query}, Step{"key", extents.keys, strides.key}};
  check_steps(name, steps, 1, element_bytes);
}

void check_distinct(const TensorShape& shape, const attune_strides& strides) {
  if (shape.batch == 0 || shape.rows == 0 || shape.heads == 0) return;
  std::array steps{Step{"batch", shape.batch, strides.batch}, Step{"row", shape.rows, strides.row},
                   Step{"head", shape.heads, strides.head}};
  check_nested(shape.name, steps, shape.dim);
}

void check_distinct(const std::string& name, const ScoreExtents& extents, const attune_score_strides& strides) {
  if (extents.batch == 0 || extents.heads == 0 || extents.queries == 0 || extents.keys == 0) return;
  const auto once = [](int64_t extent, int64_t stride) { return stride == 0 ? 1 : extent; };
  std::array steps{Step{"batch", once(extents.batch, strides.batch), strides.batch},
                   Step{"head", once(extents.heads, strides.head), strides.head},
                   Step{"query", once(extents.queries, strides.query), strides.query},
                   Step{"key", once(extents.keys, strides.key), strides.key}};
  check_nested(name, steps, 1);
}

void check_strides(Problem& problem) {
  for (const OperandRow& row : operand_rows()) {
    const bool present = has_operand(problem, row);
    const std::string name = fmt::format("desc.{}", row.name);
    if (row.strides != nullptr) {
      attune_strides& strides = problem.*row.strides;
      if (!present) strides = {};
      if (problem.packed()) strides.batch = 0;
      if (!present) continue;
      const auto [batch, rows, heads, dim] = row_extents(problem, row);
      const TensorShape shape{name, batch, rows, heads, dim, element_bytes(problem, row)};
      check_reach(shape, strides);
      if (is_written(problem, row)) check_distinct(shape, strides);
    }
    if (row.score_strides != nullptr) {
      attune_score_strides& strides = problem.*row.score_strides;
      if (!present) strides = {};
      const ScoreExtents extents{problem.batch, problem.heads_q, problem.seq_q, problem.seq_k};
      if (!present) continue;
      check_reach(name, extents, element_bytes(problem, row), strides);
      if (is_written(problem, row)) check_distinct(name, extents, strides);
    }
  }
}

}  // namespace attune
