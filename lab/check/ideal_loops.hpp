// The inner loops of Ideal. They are compiled for several instruction sets, since fma() without the instruction is
// a slow library call; the results are the same on all.
#pragma once

#include <cstdint>

namespace attune::lab {

// s[j] = sum over c of q[c] * keys[c * stride + j] in float32, one rounding per step, in the order of c, and
// partial_squares[j] = the sum of the squares of the partial sums, which is what their rounding errors grow with.
void score_row(const float* q, const float* keys, int64_t stride, int64_t dim, int64_t count, float* s,
               float* partial_squares);

// For each channel c: o[c] += p * v[c] in the precision of o, and variance[c] += p_variance * v[c]^2. In float32 the
// rounding of the sum itself counts too: variance[c] += sum_variance * o[c]^2.
void add_key(double p, double p_variance, const float* v, int64_t dim, double* o, double* variance);
void add_key(float p, double p_variance, double sum_variance, const float* v, int64_t dim, float* o, double* variance);

}  // namespace attune::lab
