// How attention's forward pass is checked.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <sstream>

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
// So many sequences that each is cut into few parts.
constexpr Shape many_sequences[] = {{40, 8, 2, 1, 1100}};
constexpr const char* features[] = {"",     "causal-br", "causal-tl", "w30,10", "cap5",
                                    "sink", "bias=bhqk", "mask=b1qk", "var",    "scale-0.3"};
std::string text_of(const Shape& shape, const Problem& like, const std::string& feature) {
  return fmt::format("fwd b{} h{}/{} q{} k{} d{}/{} {} {}{}", shape.batch, shape.heads, shape.heads_kv, shape.seq_q,
                     shape.seq_k, like.dim_qk, like.dim_v, name_of(like.dtype), feature,
                     like.has(ATTUNE_KV_READY) ? " overlap kvready" : "");
}

// Where the copy engine takes biases and masks, whose rows it wants to begin at multiples of 16 bytes.
constexpr Shape aligned_shapes[] = {
    {2, 4, 2, 200, 336}, {1, 2, 1, 500, 784}, {2, 3, 3, 129, 2048}, {3, 50, 25, 130, 64}};

// Every feature on the first shape, plain and causal on all; and what the problem itself asks for, on all.
std::vector<std::string> problems_like(const Problem& like) {
  std::vector<std::string> problems;
  const auto put = [&](const Shape& shape, const std::string& feature) {
    std::string text = to_string(parse_problem(text_of(shape, like, feature)));
    if (std::ranges::find(problems, text) == problems.end()) problems.push_back(std::move(text));
  };
  const auto add = [&](std::span<const Shape> of) {
    for (const Shape& shape : of)
      for (const char* feature : features)
        if (&shape == of.data() || feature == features[0] || feature == features[1]) put(shape, feature);
  };
  add(shapes);
  add(few_row_shapes);
  constexpr attune_features of_all = ATTUNE_SCALE | ATTUNE_LSE | ATTUNE_OVERLAP | ATTUNE_KV_READY;
  if ((like.features & ~of_all) == 0) return problems;
  const std::string own = own_words_of(like);
  const auto add_own = [&](std::span<const Shape> of) {
    for (const Shape& shape : of) put(shape, own);
  };
  add_own(aligned_shapes);
  add_own(shapes);
  add_own(few_row_shapes);
  add_own(many_sequences);
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

std::string own_words_of(const Problem& like) {
  std::istringstream words(to_string(like));
  std::string text, word;
  for (int i = 0; words >> word; ++i) {
    if (i <= 6) continue;  // fwd b h q k d dtype
    text += (text.empty() ? "" : " ") + (word.starts_with("var=") ? "var" : word);
  }
  return text;
}

}  // namespace attune::lab
