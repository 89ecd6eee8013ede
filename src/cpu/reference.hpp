// The float64 reference: what every other kernel is judged by. Written to be checked by reading.
#pragma once

#include "core/operands.hpp"

namespace attune::cpu {

// Row `row` of its sequence, from the stored inputs, not rounded: dim_v values to o, the natural log-sum-exp to *lse.
// Rows that are not in use give 0 and -inf. *max_abs_score receives the largest |scale * q.k| among visible keys (0 if
// there are none). lse and max_abs_score may be NULL. The outputs among the operands are not
// touched.
void reference_row(const Problem& problem, const Operands& operands, int64_t batch, int64_t head, int64_t row,
                   double* o, double* lse, double* max_abs_score);

}  // namespace attune::cpu
