// The contract of the C interface, checked: the pointers of a forward call. They are never followed here; most live on
// the device.
#include <cstdint>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune {
constexpr int64_t workspace_alignment = 256;

void check_args(const Problem& problem, const attune_forward_args& args, uint64_t workspace_bytes) {
  check_reserved("args.reserved", args.reserved);
  if (problem.empty()) return;

  const int64_t bytes = bytes_of(problem.dtype);
  check_pointer("args.q", args.q, bytes, "the queries");
  check_pointer("args.o", args.o, bytes, "the output");
  if (!problem.keyless()) {
    check_pointer("args.k", args.k, bytes, "the keys");
    check_pointer("args.v", args.v, bytes, "the values");
    if (problem.has(ATTUNE_BIAS))
      check_pointer("args.bias", args.bias, bytes_of(problem.bias_dtype),
                    "the bias, since desc.features has ATTUNE_BIAS");
    if (problem.has(ATTUNE_MASK))
      check_pointer("args.mask", args.mask, 1, "the mask, since desc.features has ATTUNE_MASK");
  }
  if (problem.has(ATTUNE_LSE))
    check_pointer("args.lse", args.lse, 4, "the log-sum-exp, since desc.features has ATTUNE_LSE");
  if (problem.has(ATTUNE_SINK))
    check_pointer("args.sink", args.sink, 4, "heads_q floats, since desc.features has ATTUNE_SINK");
  if (problem.packed()) {
    check_pointer("args.cu_seqlens_q", args.cu_seqlens_q, 4,
                  "batch + 1 offsets, since desc.features has ATTUNE_PACKED");
    check_pointer("args.cu_seqlens_k", args.cu_seqlens_k, 4,
                  "batch + 1 offsets, since desc.features has ATTUNE_PACKED");
  }
  if (problem.has(ATTUNE_USED_Q))
    check_pointer("args.used_q", args.used_q, 4, "batch lengths, since desc.features has ATTUNE_USED_Q");
  if (problem.has(ATTUNE_USED_K))
    check_pointer("args.used_k", args.used_k, 4, "batch lengths, since desc.features has ATTUNE_USED_K");

  // Only the sure cases: tensors may interleave in memory without sharing an element.
  const auto apart = [](const char* output_name, const void* output, const char* input_name, const void* input) {
    if (output == input)
      fail(ATTUNE_INVALID_ARGUMENT, "{} is {}, which is {} too; the output must not be an input", output_name, output,
           input_name);
  };
  apart("args.o", args.o, "args.q", args.q);
  if (!problem.keyless()) {
    apart("args.o", args.o, "args.k", args.k);
    apart("args.o", args.o, "args.v", args.v);
  }
  if (problem.has(ATTUNE_LSE)) apart("args.lse", args.lse, "args.o", args.o);

  if (workspace_bytes > 0) {
    if (args.workspace_bytes < workspace_bytes)
      fail(ATTUNE_INVALID_ARGUMENT, "args.workspace_bytes is {}; this problem needs at least {}", args.workspace_bytes,
           workspace_bytes);
    check_pointer("args.workspace", args.workspace, workspace_alignment,
                  "args.workspace_bytes bytes of working memory");
  }
}

}  // namespace attune
