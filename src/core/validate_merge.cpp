// The contract of the C interface, checked: a merge of partial results.
#include "core/checks.hpp"
#include "core/error.hpp"
#include "core/problem.hpp"

namespace attune {
namespace {

bool same(const attune_strides& a, const attune_strides& b) {
  return a.batch == b.batch && a.row == b.row && a.head == b.head;
}

// An output may be one of the parts, but only as a whole: another view of the same memory would be overwritten before
// it is read.
void check_in_place(const char* output_name, int64_t part, const attune_strides& output, const attune_strides& of_part,
                    bool same_dtype) {
  if (!same_dtype)
    fail(ATTUNE_INVALID_ARGUMENT, "args.{} is args.part_{}[{}] too; desc.dtype must then equal desc.part_dtype",
         output_name, output_name, part);
  if (!same(output, of_part))
    fail(ATTUNE_INVALID_ARGUMENT, "args.{} is args.part_{}[{}] too; desc.{} must then equal desc.part_{}", output_name,
         output_name, part, output_name, output_name);
}

}  // namespace

void check_merge(const attune_merge_desc& desc, const attune_merge_args& args) {
  check_reserved("desc.reserved", desc.reserved);
  check_reserved("args.reserved", args.reserved);
  checked_device(desc.device_kind, desc.device_index);
  const Dtype part_dtype = checked_dtype("part_dtype", desc.part_dtype);
  const Dtype dtype = checked_dtype("dtype", desc.dtype);
  checked_within("parts", desc.parts, 1, ATTUNE_MERGE_MAX_PARTS);
  checked_within("batch", desc.batch, 0, max_extent);
  checked_within("heads", desc.heads, 0, max_extent);
  checked_within("rows", desc.rows, 0, max_extent);
  checked_within("dim", desc.dim, 1, max_head_dim);

  const auto shape = [&desc](const char* name, int64_t dim, int64_t element_bytes) {
    return TensorShape{name, desc.batch, desc.rows, desc.heads, dim, element_bytes};
  };
  check_reach(shape("desc.part_o", desc.dim, bytes_of(part_dtype)), desc.part_o);
  check_reach(shape("desc.part_lse", 1, 4), desc.part_lse);
  check_reach(shape("desc.o", desc.dim, bytes_of(dtype)), desc.o);
  check_distinct(shape("desc.o", desc.dim, bytes_of(dtype)), desc.o);
  if (args.lse != nullptr) {
    check_reach(shape("desc.lse", 1, 4), desc.lse);
    check_distinct(shape("desc.lse", 1, 4), desc.lse);
  }
  if (desc.batch == 0 || desc.heads == 0 || desc.rows == 0) return;

  check_pointer("args.part_o", static_cast<const void*>(args.part_o), alignof(void*),
                "an array of desc.parts pointers");
  check_pointer("args.part_lse", static_cast<const void*>(args.part_lse), alignof(void*),
                "an array of desc.parts pointers");
  check_pointer("args.o", args.o, bytes_of(dtype), "the output");
  if (args.lse != nullptr) check_pointer("args.lse", args.lse, 4, "the log-sum-exp");
  for (int64_t part = 0; part < desc.parts; ++part) {
    check_pointer(fmt::format("args.part_o[{}]", part).c_str(), args.part_o[part], bytes_of(part_dtype),
                  "a partial output");
    check_pointer(fmt::format("args.part_lse[{}]", part).c_str(), args.part_lse[part], 4, "a partial log-sum-exp");
    if (args.o == args.part_o[part]) check_in_place("o", part, desc.o, desc.part_o, dtype == part_dtype);
    if (args.lse == args.part_lse[part]) check_in_place("lse", part, desc.lse, desc.part_lse, true);
  }
}

}  // namespace attune
