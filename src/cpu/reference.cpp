// Kernel "cpu/reference": attention by its definition, in float64, one row at a time. K and V of keys that a row does
// not see are never read.
#include "cpu/reference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/convert.hpp"
#include "core/visibility.hpp"
#include "cpu/threads.hpp"
#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"

namespace attune::cpu {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Element offset of (row, head) of one batch entry; sequences that lie end to end have no batch stride.
int64_t row_offset(const Problem& problem, const attune_strides& strides, int64_t batch, int64_t row, int64_t head) {
  return (problem.packed() ? 0 : batch * strides.batch) + row * strides.row + head * strides.head;
}

int64_t score_offset(const attune_score_strides& strides, int64_t batch, int64_t head, int64_t row, int64_t key) {
  return batch * strides.batch + head * strides.head + row * strides.query + key * strides.key;
}

double dot(const Problem& problem, const double* q, const void* k, int64_t first) {
  double sum = 0;
  for (int64_t d = 0; d < problem.dim_qk; ++d)
    sum += q[d] * static_cast<double>(load_element(k, problem.dtype, first + d));
  return sum;
}

}  // namespace

void reference_row(const Problem& problem, const Operands& operands, int64_t batch, int64_t head, int64_t row,
                   double* o, double* lse, double* max_abs_score) {
  std::fill_n(o, problem.dim_v, 0.0);
  double row_lse = -infinity;
  double largest_abs = 0;
  const Sequence sequence = sequence_of(problem, operands, batch);
  if (row < sequence.seq_q) {
    std::vector<double> q(static_cast<size_t>(problem.dim_qk));
    const int64_t q_at = row_offset(problem, problem.q, batch, sequence.first_row_q + row, head);
    for (int64_t d = 0; d < problem.dim_qk; ++d)
      q[static_cast<size_t>(d)] = static_cast<double>(load_element(operands.in(Operand::q), problem.dtype, q_at + d));

    struct Key {
      int64_t index;
      double score;
    };
    std::vector<Key> keys;
    const int64_t head_kv = head / problem.group();
    const KeyRange range = visible_keys(problem, row, sequence.seq_q, sequence.seq_k);
    for (int64_t key = range.begin; key < range.end; ++key) {
      if (problem.has(ATTUNE_MASK) &&
          operands.in<uint8_t>(Operand::mask)[score_offset(problem.mask, batch, head, row, key)] == 0)
        continue;
      const int64_t k_at = row_offset(problem, problem.k, batch, sequence.first_row_k + key, head_kv);
      double score = static_cast<double>(problem.scale) * dot(problem, q.data(), operands.in(Operand::k), k_at);
      largest_abs = std::max(largest_abs, std::abs(score));
      if (problem.has(ATTUNE_SOFTCAP)) {
        const auto cap = static_cast<double>(problem.softcap);
        score = cap * std::tanh(score / cap);
      }
      if (problem.has(ATTUNE_BIAS))
        score += static_cast<double>(load_element(operands.in(Operand::bias), problem.bias_dtype,
                                                  score_offset(problem.bias, batch, head, row, key)));
      if (score != -infinity) keys.push_back({key, score});  // a bias of -inf hides the key
    }

    const double sink =
        problem.has(ATTUNE_SINK) ? static_cast<double>(operands.in<float>(Operand::sink)[head]) : -infinity;
    double largest = sink;
    for (const Key& key : keys) largest = std::max(largest, key.score);
    if (!keys.empty() || sink != -infinity) {
      double denominator = sink == largest ? 1 : std::exp(sink - largest);
      if (sink == -infinity) denominator = 0;
      for (const Key& key : keys) {
        const double weight = std::exp(key.score - largest);
        denominator += weight;
        const int64_t v_at = row_offset(problem, problem.v, batch, sequence.first_row_k + key.index, head_kv);
        for (int64_t j = 0; j < problem.dim_v; ++j)
          o[j] += weight * static_cast<double>(load_element(operands.in(Operand::v), problem.dtype, v_at + j));
      }
      for (int64_t j = 0; j < problem.dim_v; ++j) o[j] /= denominator;
      row_lse = largest + std::log(denominator);
    }
  }
  if (lse != nullptr) *lse = row_lse;
  if (max_abs_score != nullptr) *max_abs_score = largest_abs;
}

namespace {

constexpr int64_t rows_per_task = 8;

class ReferencePlan final : public Plan {
 public:
  ReferencePlan(const Kernel& of_kernel, const Problem& of_problem, Threads& threads)
      : Plan(of_kernel, of_problem), threads_(threads) {}

  void run(const Operands& operands, void*) const override {
    const int64_t groups = (problem.seq_q + rows_per_task - 1) / rows_per_task;
    threads_.parallel_for(problem.batch * problem.heads_q * groups, [&](int64_t task) {
      const int64_t batch = task / groups / problem.heads_q;
      const int64_t head = task / groups % problem.heads_q;
      const Sequence sequence = sequence_of(problem, operands, batch);
      const int64_t first = task % groups * rows_per_task;
      std::vector<double> o(static_cast<size_t>(problem.dim_v));
      for (int64_t row = first; row < std::min(first + rows_per_task, sequence.stored_q); ++row) {
        double lse = 0;
        reference_row(problem, operands, batch, head, row, o.data(), &lse, nullptr);
        const int64_t stored_row = sequence.first_row_q + row;
        const int64_t o_at = row_offset(problem, problem.o, batch, stored_row, head);
        for (int64_t j = 0; j < problem.dim_v; ++j)
          store_element(operands.out(Operand::o), problem.dtype, o_at + j,
                        static_cast<float>(o[static_cast<size_t>(j)]));
        if (problem.has(ATTUNE_LSE))
          operands.out<float>(Operand::lse)[row_offset(problem, problem.lse, batch, stored_row, head)] =
              static_cast<float>(lse);
      }
    });
  }

 private:
  Threads& threads_;
};

class Reference final : public Kernel {
 public:
  std::string_view name() const override { return "cpu/reference"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  bool selectable() const override { return false; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem& problem, const Context&) const override {
    return 1e-6 + useful_flops(problem) / 0.5e9;
  }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const override {
    return std::make_unique<ReferencePlan>(*this, problem, context.threads());
  }
};
const Registration<Reference> registration;

}  // namespace
}  // namespace attune::cpu
