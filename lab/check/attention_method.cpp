// How attention's forward pass is checked.
#include <fmt/format.h>

#include "cpu/reference.hpp"
#include "lab/check/method.hpp"

namespace attune::lab {
namespace {

struct Shape {
  int batch, heads, heads_kv, seq_q, seq_k;
};
// The last two have more tiles than a card has SMs, of one block each and of a few: a CTA goes from tile to tile.
constexpr Shape shapes[] = {{2, 4, 2, 200, 333}, {1, 2, 1, 1000, 777}, {1, 1, 1, 64, 64},    {3, 2, 2, 129, 2048},
                            {2, 4, 2, 100, 120}, {3, 50, 25, 260, 40}, {3, 50, 25, 260, 150}};
constexpr Shape few_row_shapes[] = {{2, 4, 2, 1, 77}, {1, 2, 2, 5, 1000}, {3, 1, 1, 8, 64}};
constexpr const char* features[] = {"",     "causal-br", "causal-tl", "w30,10", "cap5",
                                    "sink", "bias=bhqk", "mask=b1qk", "var",    "scale-0.3"};
std::string text_of(const Shape& shape, const Problem& like, const std::string& feature) {
  return fmt::format("fwd b{} h{}/{} q{} k{} d{}/{} {} {}{}", shape.batch, shape.heads, shape.heads_kv, shape.seq_q,
                     shape.seq_k, like.dim_qk, like.dim_v, name_of(like.dtype), feature,
                     like.has(ATTUNE_KV_READY) ? " overlap kvready" : "");
}

// Every feature on the first shape, plain and causal on all.
std::vector<std::string> problems_like(const Problem& like) {
  std::vector<std::string> problems;
  const auto add = [&](std::span<const Shape> of) {
    for (const Shape& shape : of)
      for (const char* feature : features)
        if (&shape == of.data() || feature == features[0] || feature == features[1])
          problems.push_back(to_string(parse_problem(text_of(shape, like, feature))));
  };
  add(shapes);
  add(few_row_shapes);
  return problems;
}

void reference_row_of(const Problem& problem, const Operands& inputs, const RowId& row, double* o, double* lse) {
  cpu::reference_row(problem, inputs, row.batch, row.head, row.row, o, lse, nullptr);
}

constexpr CheckMethod attention{.operation = &forward_operation,
                                .fill = fill_attention,
                                .reference_row = reference_row_of,
                                .ideal_rows = ideal_attention,
                                .oracles = oracles_of_attention,
                                .problems_like = problems_like};
const CheckMethodRegistration attention_registration(attention);

}  // namespace
}  // namespace attune::lab
