// The float64 gradients against what they are by definition: how the forward pass changes when an input does.
#include <gtest/gtest.h>

#include <string>

#include "core/convert.hpp"
#include "cpu/reference.hpp"
#include "lab/check/method.hpp"

namespace attune {
namespace {

using lab::RowChoice;
using lab::Tensors;

// What the gradients are of: the sum of dout * o and of dlse * lse over all rows.
double loss(const Tensors& t) {
  const Problem& p = t.problem;
  const Operands inputs = t.input_operands();
  std::vector<double> o(static_cast<size_t>(p.dim_v));
  double sum = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = t.sequence(b);
    for (int64_t head = 0; head < p.heads_q; ++head)
      for (int64_t row = 0; row < s.seq_q; ++row) {
        double lse = 0;
        cpu::reference_row(p, inputs, b, head, row, o.data(), &lse, nullptr);
        const int64_t at = lab::row_offset(p, p.dout, b, s.first_row_q, row, head);
        for (int64_t c = 0; c < p.dim_v; ++c)
          sum += o[static_cast<size_t>(c)] * static_cast<double>(t[Operand::dout].as<float>()[at + c]);
        if (p.has(ATTUNE_DLSE) && std::isfinite(lse))
          sum += lse * static_cast<double>(
                           t[Operand::dlse].as<float>()[lab::row_offset(p, p.dlse, b, s.first_row_q, row, head)]);
      }
  }
  return sum;
}

// By the slope between a little less and a little more of one element.
double slope(Tensors& t, Operand input, int64_t element) {
  float& value = t[input].as<float>()[element];
  const float before = value;
  value = before + 0x1p-9f;
  const double high = value, loss_high = loss(t);
  value = before - 0x1p-9f;
  const double low = value, loss_low = loss(t);
  value = before;
  return (loss_high - loss_low) / (high - low);
}

Operand input_of(Operand gradient) {
  switch (gradient) {
    case Operand::dq:
      return Operand::q;
    case Operand::dk:
      return Operand::k;
    case Operand::dv:
      return Operand::v;
    case Operand::dsink:
      return Operand::sink;
    default:
      return Operand::bias;
  }
}

class BackwardReference : public testing::TestWithParam<const char*> {};

TEST_P(BackwardReference, IsTheSlopeOfTheForwardPass) {
  cpu::Threads threads{attune_options{}};
  const Problem problem = parse_problem(GetParam());
  Tensors t = lab::make_inputs(problem, lab::InputKind::normal, 7, lab::Storage::dense, threads);
  const lab::CheckMethod& method = lab::check_method_of(problem);
  std::vector<RowChoice> choices;
  for (const Operand output : method.outputs(problem)) choices.push_back(lab::choose_rows(t, {}, 1, output));
  const auto truth = method.reference_of(t, choices, threads);
  int64_t compared = 0;
  for (size_t which = 0; which < choices.size(); ++which) {
    const Operand output = choices[which].output, input = input_of(output);
    for (size_t i = 0; i < choices[which].rows.size(); ++i) {
      const lab::RowId& id = choices[which].rows[i];
      // Of what is not in use nothing can be changed: it is poison.
      const bool of_keys = row_of(output).seq == &Problem::seq_k;
      const Sequence s = t.sequence(row_of(output).form == Form::rows ? id.batch : 0);
      const bool in_use = row_of(output).form != Form::rows || id.row < (of_keys ? s.seq_k : s.seq_q);
      for (int64_t c = 0; c < truth[which].dim; ++c) {
        const double gradient = truth[which].o[i * static_cast<size_t>(truth[which].dim) + static_cast<size_t>(c)];
        // The gradients have the strides of what they belong to.
        const double expected = in_use ? slope(t, input, lab::element_offset(t, output, id, c)) : 0;
        ASSERT_NEAR(gradient, expected, 2e-5 * std::max(1.0, std::abs(expected)))
            << row_of(output).name << ", batch " << id.batch << ", head " << id.head << ", row " << id.row
            << ", element " << c;
        if (truth[which].unseen[i]) {
          ASSERT_EQ(gradient, 0);
        }
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(
    Features, BackwardReference,
    testing::Values("bwd b1 h2/1 q3 k4 d3/2 f32", "bwd b2 h2/2 q3 k4 d2 f32 causal-br dlse",
                    "bwd b1 h1/1 q4 k3 d2 f32 causal-tl", "bwd b1 h2/1 q5 k6 d2 f32 w1,2 cap1 dlse",
                    "bwd b2 h2/1 q3 k4 d2 f32 sink dsink dlse", "bwd b1 h2/1 q9 k4 d2 f32 mask=1hqk sink dsink dlse",
                    "bwd b2 h2/2 q3 k4 d2 f32 bias=bhqk dbias", "bwd b2 h2/1 q3 k4 d2 f32 bias=1hq1 dbias cap2",
                    "bwd b2 h2/2 q3 k4 d2 f32 bias=b11k dbias dlse", "bwd b2 h2/2 q3 k4 d2 f32 bias=1111 dbias dlse",
                    "bwd b4 h2/1 q3 k4 d2 f32 var causal-br", "bwd b3 h2/2 q4 k5 d2 f32 used-q used-k scale-0.5 bhsd"));

}  // namespace
}  // namespace attune
