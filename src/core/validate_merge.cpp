// The contract of the C interface, checked: every field of a merge descriptor.
#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/operation.hpp"

namespace attune {

Problem problem_from(const attune_merge_desc& desc, bool with_lse) {
  Problem problem;
  problem.operation = &merge_operation;
  check_reserved("desc.reserved", desc.reserved);
  problem.device_kind = checked_device(desc.device_kind, desc.device_index);
  problem.device_index = desc.device_index;
  problem.features = with_lse ? ATTUNE_LSE : 0;
  problem.part_dtype = checked_dtype("part_dtype", desc.part_dtype);
  problem.dtype = problem.bias_dtype = checked_dtype("dtype", desc.dtype);
  problem.parts = static_cast<int32_t>(checked_within("parts", desc.parts, 1, ATTUNE_MERGE_MAX_PARTS));
  problem.batch = checked_within("batch", desc.batch, 0, max_extent);
  problem.heads_q = problem.heads_kv = checked_within("heads", desc.heads, 0, max_extent);
  problem.seq_q = checked_within("rows", desc.rows, 0, max_extent);
  problem.dim_v = problem.dim_qk = checked_within("dim", desc.dim, 1, max_head_dim);
  problem.scale = default_scale(problem.dim_qk);
  problem.part_o = desc.part_o;
  problem.part_lse = desc.part_lse;
  problem.o = desc.o;
  problem.lse = desc.lse;
  check_strides(problem);
  return problem;
}

}  // namespace attune
