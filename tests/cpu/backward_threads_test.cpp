// The bits of gradients do not depend on the number of threads, nor on other calls at the same time.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "core/operation.hpp"
#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

// A backward over dense f32 tensors, with whatever o and lse: any numbers do.
struct BackwardCall {
  explicit BackwardCall(const char* text) : problem(parse_problem(text)) {
    for (const OperandRow& row : operand_rows()) {
      if (!has_operand(problem, row)) continue;
      std::vector<float>& values = buffers[static_cast<size_t>(row.operand)];
      values.resize(static_cast<size_t>(elements(row)));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = is_written(problem, row) ? NAN : std::sin(static_cast<float>(i + 1) * 0.7f);
      operands.set(row.operand, values.data());
    }
  }

  int64_t elements(const OperandRow& row) const {
    const auto along = [](int64_t extent, int64_t stride) { return stride == 0 ? 1 : extent; };
    if (row.form == Form::scores) {
      const attune_score_strides& s = problem.*row.score_strides;
      return along(problem.batch, s.batch) * along(problem.heads_q, s.head) * along(problem.seq_q, s.query) *
             along(problem.seq_k, s.key);
    }
    if (row.form == Form::heads) return problem.heads_q;
    const auto [batch, rows, heads, dim] = row_extents(problem, row);
    return batch * rows * heads * dim;
  }

  void run(attune_context* context) {
    const attune_backward_desc desc = backward_desc_from(problem);
    const attune_backward_args args = backward_args_of(operands);
    EXPECT_EQ(attune_backward(context, &desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
  }

  std::vector<float> results() const {
    std::vector<float> all;
    for (const OperandRow& row : operand_rows()) {
      const std::vector<float>& values = buffers[static_cast<size_t>(row.operand)];
      if (is_written(problem, row)) all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  Problem problem;
  std::array<std::vector<float>, operand_count> buffers;
  Operands operands;
};

constexpr const char* problems[] = {"bwd b2 h4/2 q150 k200 d40 f32 causal-br sink bias=1h1k dlse dsink dbias",
                                    "bwd b1 h2/1 q70 k300 d16/24 f32 w50,3 cap10"};

std::vector<float> results_with(const char* text, int threads) {
  const ForcedContext context("cpu/bwd", threads);
  BackwardCall call(text);
  call.run(context.get());
  return call.results();
}

TEST(BackwardThreads, AnyNumberGivesTheSameBits) {
  for (const char* text : problems) {
    const std::vector<float> one = results_with(text, 1);
    EXPECT_TRUE(std::isfinite(std::accumulate(one.begin(), one.end(), 0.0))) << "everything was written";
    for (const int threads : {2, 3, 7}) EXPECT_EQ(results_with(text, threads), one) << text << ", " << threads;
  }
}

TEST(BackwardThreads, CallsAtTheSameTimeDoNotDisturbEachOther) {
  const ForcedContext context("", 3);
  const std::vector<float> expected = results_with(problems[0], 1);
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> callers;
  for (std::vector<float>& result : results)
    callers.emplace_back([&result, &context] {
      BackwardCall call(problems[0]);
      call.run(context.get());
      result = call.results();
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::vector<float>& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace attune::test
