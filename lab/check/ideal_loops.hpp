// The inner loops of Ideal. They are compiled for several instruction sets, since fma() without the instruction is
// a slow library call; the results are the same on all.
#pragma once

#include <cstdint>

namespace attune::lab {

// s[j] = sum over c of q[c] * keys[c * stride + j] in float32, one rounding per step, in the order of c, and
// partial_squares[j] = the sum of the squares of the partial sums, which is what their rounding errors grow with.
void score_row(const float* q, const float* keys, int64_t stride, int64_t dim, int64_t count, float* s,
               float* partial_squares);

// What a key adds to the sums of a row.
struct KeyTerms {
  float p = 0;
  double rounding_variance = 0;  // of p, by its own rounding: independent of the row sum
  double logit_variance = 0;     // of p, by the rounding of its logit: the row sum has it too
};

// Per channel: o += p * v, square_terms += (both variances) * v^2, cross_terms += logit_variance * v.
void add_key(const KeyTerms& key, const float* v, int64_t dim, double* o, double* square_terms, double* cross_terms);

// The same with o in float32, whose own rounding counts too: square_terms += sum_variance * o^2.
void add_key(const KeyTerms& key, double sum_variance, const float* v, int64_t dim, float* o, double* square_terms,
             double* cross_terms);

}  // namespace attune::lab
