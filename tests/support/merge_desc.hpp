// The description of a merge whose tensors lie dense, batch by head by row.
#pragma once

#include "attune/attune.h"

namespace attune::test {

inline attune_merge_desc dense_merge_desc(attune_dtype part_dtype, attune_dtype dtype, int64_t parts, int64_t batch,
                                          int64_t heads, int64_t rows, int64_t dim) {
  attune_merge_desc desc{};
  desc.struct_size = sizeof desc;
  desc.part_dtype = part_dtype;
  desc.dtype = dtype;
  desc.parts = parts;
  desc.batch = batch;
  desc.heads = heads;
  desc.rows = rows;
  desc.dim = dim;
  desc.part_o = desc.o = {heads * rows * dim, dim, rows * dim};
  desc.part_lse = desc.lse = {heads * rows, 1, rows};
  return desc;
}

}  // namespace attune::test
