// Kernel "cpu/merge": each output row is the parts' rows weighted by exp(lse_i - lse), in float64.
#include "cpu/merge.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/convert.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"

namespace attune::cpu {
namespace {

constexpr int64_t rows_per_task = 64;
constexpr double infinity = std::numeric_limits<double>::infinity();

int64_t offset(const attune_strides& strides, int64_t b, int64_t row, int64_t head) {
  return b * strides.batch + row * strides.row + head * strides.head;
}

template <Dtype dtype>
void add_scaled(double* sum, double weight, const void* part, int64_t first, int64_t dim) {
  for (int64_t j = 0; j < dim; ++j) sum[j] += weight * static_cast<double>(load_element(part, dtype, first + j));
}

void add_scaled(Dtype dtype, double* sum, double weight, const void* part, int64_t first, int64_t dim) {
  switch (dtype) {
    case Dtype::f16:
      return add_scaled<Dtype::f16>(sum, weight, part, first, dim);
    case Dtype::bf16:
      return add_scaled<Dtype::bf16>(sum, weight, part, first, dim);
    case Dtype::f32:
      return add_scaled<Dtype::f32>(sum, weight, part, first, dim);
  }
}

}  // namespace

void merged_row(const Problem& problem, const Operands& operands, int64_t b, int64_t head, int64_t row, double* o,
                double* lse) {
  const auto* part_o = operands.parts(Operand::part_o);
  const auto* part_lse = operands.parts<float>(Operand::part_lse);
  std::array<double, ATTUNE_MERGE_MAX_PARTS> weights;
  const int64_t lse_at = offset(problem.part_lse, b, row, head);
  double largest = -infinity;
  bool empty = true;
  for (int32_t i = 0; i < problem.parts; ++i) {
    weights[i] = static_cast<double>(part_lse[i][lse_at]);
    if (weights[i] != -infinity) empty = false;
    if (weights[i] > largest) largest = weights[i];
  }
  std::fill_n(o, problem.dim_v, 0.0);
  *lse = -infinity;
  if (empty) return;
  double total = 0;
  // The largest has weight 1 also where it is +inf, which exp(inf - inf) would not say.
  for (int32_t i = 0; i < problem.parts; ++i) {
    weights[i] = weights[i] == largest ? 1 : std::exp(weights[i] - largest);
    total += weights[i];
  }
  // A part without weight may hold anything, NaN included.
  for (int32_t i = 0; i < problem.parts; ++i)
    if (weights[i] != 0)
      add_scaled(problem.part_dtype, o, weights[i] / total, part_o[i], offset(problem.part_o, b, row, head),
                 problem.dim_v);
  *lse = largest + std::log(total);
}

namespace {

class MergePlan final : public Plan {
 public:
  MergePlan(const Kernel& of_kernel, const Problem& of_problem, Threads& threads)
      : Plan(of_kernel, of_problem), threads_(threads) {}

  void run(const Operands& operands, void*) const override {
    const int64_t rows = problem.batch * problem.heads_q * problem.seq_q;
    const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
    threads_.parallel_for(tasks, [&](int64_t task) {
      const int64_t end = std::min(rows, (task + 1) * rows_per_task);
      for (int64_t i = task * rows_per_task; i < end; ++i)
        write_row(operands, i / (problem.heads_q * problem.seq_q), i / problem.seq_q % problem.heads_q,
                  i % problem.seq_q);
    });
  }

  std::string describe() const override { return fmt::format("threads: {}\n", threads_.size()); }

 private:
  void write_row(const Operands& operands, int64_t b, int64_t head, int64_t row) const {
    std::array<double, max_head_dim> o;
    double lse = 0;
    merged_row(problem, operands, b, head, row, o.data(), &lse);
    const int64_t o_at = offset(problem.o, b, row, head);
    for (int64_t j = 0; j < problem.dim_v; ++j)
      store_element(operands.out(Operand::o), problem.dtype, o_at + j, static_cast<float>(o[static_cast<size_t>(j)]));
    if (problem.has(ATTUNE_LSE))
      operands.out<float>(Operand::lse)[offset(problem.lse, b, row, head)] = static_cast<float>(lse);
  }

  Threads& threads_;
};

class Merge final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/merge"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  const Operation& operation() const override { return merge_operation; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem& problem, const Context&) const override {
    return 1e-6 + useful_flops(problem) / 1e9;
  }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override {
    return std::make_unique<MergePlan>(*this, problem, context.threads());
  }
};
const Registration<Merge> registration;

}  // namespace
}  // namespace attune::cpu
