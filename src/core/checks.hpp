// The checks that the descriptors of all calls share. Each one throws ATTUNE_INVALID_ARGUMENT with
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

// What a forward call may ask for.
inline constexpr attune_features forward_features =
    ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SOFTCAP | ATTUNE_SINK | ATTUNE_BIAS | ATTUNE_MASK | ATTUNE_PACKED |
    ATTUNE_USED_Q | ATTUNE_USED_K | ATTUNE_LSE | ATTUNE_OVERLAP | ATTUNE_KV_READY | ATTUNE_F32_HIGH;
void check_features(attune_features features, attune_features known);

// Everything that the descriptors of attention's passes have in common, checked and resolved, but for the strides,
// which check_strides() checks when the problem has its operation.
Problem attention_problem_from(const attune_forward_desc& desc);

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
// The same of what is written along its dimensions whose stride is not 0.
void check_distinct(const std::string& name, const ScoreExtents& extents, const attune_score_strides& strides);

// The strides of every operand of the problem, by the rules above; those of operands it does not have become 0, and so
// do batch strides of packed sequences.
void check_strides(Problem& problem);

}  // namespace attune
