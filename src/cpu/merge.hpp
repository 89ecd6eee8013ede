// Joins partial attention results over disjoint key sets, one row at a time.
#pragma once

#include "core/operands.hpp"

namespace attune::cpu {

// Row `row` of the joined result, not rounded: dim_v values to o, the natural log-sum-exp to *lse. Reads the row of
// every part before it returns, so an output may be one of the parts.
void merged_row(const Problem& problem, const Operands& operands, int64_t batch, int64_t head, int64_t row, double* o,
                double* lse);

}  // namespace attune::cpu
