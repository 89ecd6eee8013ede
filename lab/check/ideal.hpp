// Ideal: the result of a kernel that does everything right in the precision a fused kernel has.
//
// Scores are summed in float32 in the order of the channels; t = fma(s, scale * log2 e, -m) in float32; p = exp2(t)
// rounded to the input dtype; sums in float64; O rounded once. With a softcap or a bias, s * scale is rounded, then
// capped, then biased, in float32, before the fma with log2 e. For f32 p is not rounded further, and the sums run in
// float32 in the order of the keys: float64 sums are nothing a fused f32 kernel has, and there is no 16-bit rounding
// to hide the difference.
//
// Beside the result Ideal keeps what rounding was bound to cost it (Row): a kernel is judged by the size of its error
// relative to Ideal's, and that size cannot be read off one row.
#pragma once

#include <span>
#include <vector>

#include "cpu/threads.hpp"
#include "lab/check/rows.hpp"

namespace attune::lab {

struct Ideal {
  struct Row {
    double expected_energy = 0;  // expected sum over channels of the squared error, the final rounding included
    double sigma = 0;            // largest standard deviation over the channels, without the final rounding
    double max_logit = 0;        // largest |scale * s| among the visible keys
  };
  int64_t dim = 0;
  std::vector<RowId> ids;
  std::vector<float> o;  // rows x dim, in the dtype of the output in question
  std::vector<Row> rows;
};

// By the rule of the problem's operation (method.hpp).
Ideal ideal_rows(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads);

Ideal ideal_attention(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads);

// The gradients (ideal_backward.cpp).
std::vector<Ideal> ideal_gradients(const Tensors& tensors, std::span<const RowChoice> outputs, cpu::Threads& threads);

}  // namespace attune::lab
