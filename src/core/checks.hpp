// The checks that the descriptors of a forward call and of a merge share. Each one throws ATTUNE_INVALID_ARGUMENT with
// a sentence that names the argument, its value and what is allowed.
#pragma once

#include <cstdint>
#include <string>

#include "core/problem.hpp"

namespace attune {

// `name` is the field of the descriptor: "batch".
int64_t checked_within(const char* name, int64_t value, int64_t low, int64_t high);
Dtype checked_dtype(const char* name, attune_dtype value);
DeviceKind checked_device(attune_device_kind kind, int32_t index);
void check_reserved(const char* name, uint32_t value);

// Not NULL and aligned; `what` says what it must point to.
void check_pointer(const char* name, const void* pointer, int64_t alignment, const char* what);

struct TensorShape {
  std::string name;  // "desc.q"
  int64_t batch, rows, heads, dim;
  int64_t element_bytes;
};

struct ScoreExtents {
  int64_t batch, heads, queries, keys;
};

// Every byte offset, also one element past the end in every dimension, fits in int64_t, and so does the number of
// elements.
void check_reach(const TensorShape& shape, const attune_strides& strides);
void check_reach(const std::string& name, const ScoreExtents& extents, int64_t element_bytes,
                 const attune_score_strides& strides);

// No two elements share memory. Asks for nested strides: in order of size, each one steps over all that the smaller
// ones reach. Layouts without overlap that do not nest exist, but nobody stores tensors that way.
void check_distinct(const TensorShape& shape, const attune_strides& strides);

// The strides of every operand of the problem, by the rules above; those of operands it does not have become 0, and so
// do batch strides of packed sequences.
void check_strides(Problem& problem);

}  // namespace attune
