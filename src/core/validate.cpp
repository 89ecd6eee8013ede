// The contract of the C interface, checked: every field of a forward descriptor, which a backward descriptor has, too.
// An error names the argument, its value and what is allowed.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune {
namespace {

constexpr int64_t max_int32 = std::numeric_limits<int32_t>::max();

void read_kinds(const attune_forward_desc& desc, Problem& problem) {
  problem.features = desc.features;
  if (problem.has(ATTUNE_KV_READY) && !problem.has(ATTUNE_OVERLAP))
    fail(ATTUNE_INVALID_ARGUMENT,
         "desc.features is {:#x}; ATTUNE_KV_READY ({:#x}) is allowed only together with ATTUNE_OVERLAP ({:#x})",
         desc.features, ATTUNE_KV_READY, ATTUNE_OVERLAP);
  check_reserved("desc.reserved", desc.reserved);
  problem.device_kind = checked_device(desc.device_kind, desc.device_index);
  problem.device_index = desc.device_index;

  problem.dtype = checked_dtype("dtype", desc.dtype);
  // A permission that changes nothing must not make another problem.
  if (problem.dtype != Dtype::f32 || problem.device_kind != DeviceKind::cpu) problem.features &= ~ATTUNE_F32_HIGH;
  problem.bias_dtype = problem.dtype;
  if (problem.has(ATTUNE_BIAS)) {
    problem.bias_dtype = checked_dtype("bias_dtype", desc.bias_dtype);
    if (problem.bias_dtype != problem.dtype && problem.bias_dtype != Dtype::f32)
      fail(ATTUNE_INVALID_ARGUMENT, "desc.bias_dtype is {}; it must be {} (desc.dtype) or f32",
           name_of(problem.bias_dtype), name_of(problem.dtype));
  }
  if (desc.causal < ATTUNE_CAUSAL_NONE || desc.causal > ATTUNE_CAUSAL_BOTTOM_RIGHT)
    fail(ATTUNE_INVALID_ARGUMENT,
         "desc.causal is {}; it must be ATTUNE_CAUSAL_NONE (0), ATTUNE_CAUSAL_TOP_LEFT (1) or "
         "ATTUNE_CAUSAL_BOTTOM_RIGHT (2)",
         desc.causal);
  problem.causal = static_cast<Causal>(desc.causal);
}

void read_extents(const attune_forward_desc& desc, Problem& problem) {
  problem.batch = checked_within("batch", desc.batch, 0, max_extent);
  problem.heads_q = checked_within("heads_q", desc.heads_q, 0, max_extent);
  problem.heads_kv = checked_within("heads_kv", desc.heads_kv, 0, max_extent);
  if (problem.heads_kv == 0 ? problem.heads_q != 0 : problem.heads_q % problem.heads_kv != 0)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.heads_kv is {}; it must divide heads_q ({})", desc.heads_kv, desc.heads_q);
  problem.seq_q = checked_within("seq_q", desc.seq_q, 0, max_extent);
  problem.seq_k = checked_within("seq_k", desc.seq_k, 0, max_extent);
  problem.dim_qk = checked_within("dim_qk", desc.dim_qk, 1, max_head_dim);
  problem.dim_v = checked_within("dim_v", desc.dim_v, 1, max_head_dim);
  if (problem.packed()) {
    // cu_seqlens are int32.
    problem.total_q = checked_within("total_q", desc.total_q, 0, max_int32);
    problem.total_k = checked_within("total_k", desc.total_k, 0, max_int32);
    // An upper bound may be as loose as the caller likes; the work must not be.
    problem.seq_q = std::min(problem.seq_q, problem.total_q);
    problem.seq_k = std::min(problem.seq_k, problem.total_k);
  } else {
    if (desc.total_q != 0)
      fail(ATTUNE_INVALID_ARGUMENT, "desc.total_q is {}; it must be 0 without ATTUNE_PACKED", desc.total_q);
    if (desc.total_k != 0)
      fail(ATTUNE_INVALID_ARGUMENT, "desc.total_k is {}; it must be 0 without ATTUNE_PACKED", desc.total_k);
  }
}

void read_score_function(const attune_forward_desc& desc, Problem& problem) {
  problem.scale = default_scale(problem.dim_qk);
  if (problem.has(ATTUNE_SCALE)) {
    if (!std::isfinite(desc.scale)) fail(ATTUNE_INVALID_ARGUMENT, "desc.scale is {}; it must be finite", desc.scale);
    problem.scale = desc.scale;
  }
  if (problem.has(ATTUNE_SOFTCAP)) {
    if (!(desc.softcap > 0) || !std::isfinite(desc.softcap))
      fail(ATTUNE_INVALID_ARGUMENT, "desc.softcap is {}; it must be finite and greater than 0", desc.softcap);
    problem.softcap = desc.softcap;
  }
  if (problem.has(ATTUNE_WINDOW)) {
    const auto bound = [](const char* name, int64_t value) {
      if (value < unbounded)
        fail(ATTUNE_INVALID_ARGUMENT, "desc.{} is {}; it must be -1 (unbounded), 0 or greater", name, value);
      return value > max_extent ? unbounded : value;  // no key is that far: sums of positions cannot overflow
    };
    problem.window_left = bound("window_left", desc.window_left);
    problem.window_right = bound("window_right", desc.window_right);
  }

  const auto set = [&problem](attune_features bit, bool on) {
    problem.features = on ? problem.features | bit : problem.features & ~bit;
  };
  set(ATTUNE_SCALE, problem.scale != default_scale(problem.dim_qk));
  set(ATTUNE_WINDOW, problem.window_left != unbounded || problem.window_right != unbounded);
}

void read_strides(const attune_forward_desc& desc, Problem& problem) {
  problem.q = desc.q;
  problem.k = desc.k;
  problem.v = desc.v;
  problem.o = desc.o;
  problem.lse = desc.lse;
  problem.bias = desc.bias;
  problem.mask = desc.mask;
}

}  // namespace

void check_features(attune_features features, attune_features known) {
  if ((features & ~known) != 0)
    fail(ATTUNE_INVALID_ARGUMENT, "desc.features is {:#x}; the bits {:#x} are unknown, {:#x} are allowed", features,
         features & ~known, known);
}

Problem attention_problem_from(const attune_forward_desc& desc) {
  Problem problem;
  read_kinds(desc, problem);
  read_extents(desc, problem);
  read_score_function(desc, problem);
  read_strides(desc, problem);
  return problem;
}

Problem problem_from(const attune_forward_desc& desc) {
  check_features(desc.features, forward_features);
  Problem problem = attention_problem_from(desc);
  check_strides(problem);
  return problem;
}

}  // namespace attune
