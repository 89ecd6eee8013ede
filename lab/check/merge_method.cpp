// How merges are checked. Their rule is written anew here: the kernels do not judge themselves.
//
// Ideal is the truth rounded once: memory limits a merge, so a good kernel computes in float64.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lab/check/dtype.hpp"
#include "lab/check/method.hpp"
#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Oracle oracles_of_merges[] = {Oracle::split};

int64_t place(const attune_strides& strides, const RowId& row) {
  return row.batch * strides.batch + row.row * strides.row + row.head * strides.head;
}

// The log-sum-exp of a part's row. Among them are rows that saw no key, alone and in all parts.
double lse_value(InputKind kind, stats::Random& random, int64_t part, bool nobody_saw_a_key) {
  if (nobody_saw_a_key || random.below(8) == 0) return -infinity;
  switch (kind) {
    case InputKind::far_negative:
      return -1e5 + random.normal();
    case InputKind::rising_max:
      return 20.0 * static_cast<double>(part) + random.normal();
    case InputKind::equal_logits:
      return 3;
    case InputKind::heavy_tailed:
    case InputKind::outlier_channel:
      return 30 * random.normal();
    default:
      return 2 * random.normal();
  }
}

double o_value(InputKind kind, stats::Random& random, Dtype dtype) {
  switch (kind) {
    case InputKind::denormals:
      return std::ldexp(random.uniform() - 0.5, smallest_exponent(dtype));
    case InputKind::extremes:
      return (random.uniform() - 0.5) * 2 * std::min(largest(dtype), 65504.0);
    default:
      return random.normal();
  }
}

// The o of a part that saw no key may hold anything: it stays poison.
void fill(Tensors& tensors, InputKind kind, uint64_t seed, cpu::Threads& threads) {
  const Problem& p = tensors.problem;
  threads.parallel_for(p.batch * p.heads_q, [&](int64_t index) {
    stats::Random random(derive_seed(seed, static_cast<uint64_t>(index)));
    for (int64_t i = 0; i < p.seq_q; ++i) {
      const RowId row{index / p.heads_q, index % p.heads_q, i};
      const bool nobody_saw_a_key = random.below(16) == 0;
      for (int64_t part = 0; part < p.parts; ++part) {
        const double lse = lse_value(kind, random, part, nobody_saw_a_key);
        tensors.parts(Operand::part_lse)[part].as<float>()[place(p.part_lse, row)] = static_cast<float>(lse);
        if (lse == -infinity) continue;
        for (int64_t c = 0; c < p.dim_v; ++c)
          store_element(tensors.parts(Operand::part_o)[part].data(), p.part_dtype, place(p.part_o, row) + c,
                        static_cast<float>(o_value(kind, random, p.part_dtype)));
      }
    }
  });
}

void merged_row(const Problem& problem, const Operands& inputs, const RowId& row, double* o, double* lse) {
  std::fill_n(o, problem.dim_v, 0.0);
  *lse = -infinity;
  double largest = -infinity, weights = 0;
  const auto lse_of = [&](int64_t part) -> double {
    return inputs.parts<float>(Operand::part_lse)[part][place(problem.part_lse, row)];
  };
  for (int64_t part = 0; part < problem.parts; ++part) largest = std::max(largest, lse_of(part));
  if (largest == -infinity) return;
  for (int64_t part = 0; part < problem.parts; ++part) {
    const double weight = std::exp(lse_of(part) - largest);
    if (weight == 0) continue;
    weights += weight;
    for (int64_t c = 0; c < problem.dim_v; ++c)
      o[c] += weight * static_cast<double>(load_element(inputs.parts(Operand::part_o)[part], problem.part_dtype,
                                                        place(problem.part_o, row) + c));
  }
  for (int64_t c = 0; c < problem.dim_v; ++c) o[c] /= weights;
  *lse = largest + std::log(weights);
}

Ideal ideal_merge(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads& threads) {
  const Problem& p = tensors.problem;
  const Operands inputs = tensors.input_operands();
  const auto dim = static_cast<size_t>(p.dim_v);
  Ideal ideal;
  ideal.dim = p.dim_v;
  ideal.ids.assign(rows.begin(), rows.end());
  ideal.o.resize(rows.size() * dim);
  ideal.rows.resize(rows.size());
  threads.parallel_for(static_cast<int64_t>(rows.size()), [&](int64_t i) {
    std::vector<double> truth(dim);
    double lse = 0;
    merged_row(p, inputs, rows[i], truth.data(), &lse);
    for (size_t c = 0; c < dim; ++c) {
      float& o = ideal.o[static_cast<size_t>(i) * dim + c];
      o = static_cast<float>(round_to(p.dtype, truth[c]));
      if (static_cast<double>(o) == truth[c]) continue;
      const double ulp = ulp_at(p.dtype, truth[c]);
      ideal.rows[i].expected_energy += ulp * ulp / 12;
    }
  });
  return ideal;
}

std::vector<std::string> merges_like(const Problem& like) {
  std::vector<std::string> problems;
  for (const std::string_view shape :
       {"p2 b2 h4 q200 d64", "p1 b1 h2 q1 d128", "p7 b3 h1 q129 d80", "p64 b1 h2 q33 d512"})
    for (const std::string_view types :
         {"f16", "bf16", "f32", "bf16 parts-f32", "f16 parts-f32 nolse", "f32 parts-bf16 bhsd"})
      problems.push_back(to_string(parse_problem(fmt::format("{} {} {}", like.operation->name, shape, types))));
  return problems;
}

constexpr CheckMethod merge{.operation = &merge_operation,
                            .fill = fill,
                            .reference_row = merged_row,
                            .ideal_rows = ideal_merge,
                            .oracles = oracles_of_merges,
                            .problems_like = merges_like};
const CheckMethodRegistration merge_registration(merge);

}  // namespace
}  // namespace attune::lab
