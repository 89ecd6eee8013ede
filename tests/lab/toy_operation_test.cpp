// An operation that only these tests know: o is q reversed along the head dimension. The text form, selection, plans,
// explanations, the check and the measuring engine take it like any other, without knowing of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/checks.hpp"
#include "core/convert.hpp"
#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/dtype.hpp"
#include "lab/check/method.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/forward_contender.hpp"
#include "lab/stats/random.hpp"

namespace attune {
namespace {

using lab::RowId;
using lab::Tensors;
using testing::HasSubstr;

constexpr std::string_view required[] = {"b", "h", "q", "d", "dtype"};
constexpr std::string_view optional[] = {"layout"};

Problem resolved(const Problem& problem) {
  Problem result = problem;
  result.features = 0;
  check_strides(result);
  return result;
}

double elements(const Problem& p) { return static_cast<double>(p.batch * p.heads_q * p.seq_q * p.dim_qk); }

constinit const Operation toy{
    .name = "toy",
    .example = "toy b1 h1 q1 d8 f32",
    .operands = {Operand::q, Operand::o},
    .written = {Operand::o},
    .required_words = required,
    .optional_words = optional,
    .resolved = resolved,
    .flops = elements,
    .bytes = elements,
};
const OperationRegistration operation_registration(toy);

int64_t place(const attune_strides& strides, const RowId& row) {
  return row.batch * strides.batch + row.row * strides.row + row.head * strides.head;
}

template <typename Body>
void for_each_row(const Problem& p, Body&& body) {
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t head = 0; head < p.heads_q; ++head)
      for (int64_t row = 0; row < p.seq_q; ++row) body(RowId{b, head, row});
}

class ToyPlan final : public Plan {
 public:
  ToyPlan(const Kernel& of_kernel, const Problem& of_problem, bool forgets_the_last)
      : Plan(of_kernel, of_problem), forgets_the_last_(forgets_the_last) {}
  void run(const Operands& operands, void*) const override {
    const Problem& p = problem;
    for_each_row(p, [&](const RowId& row) {
      for (int64_t c = 0; c < p.dim_v - (forgets_the_last_ ? 1 : 0); ++c)
        store_element(operands.out(Operand::o), p.dtype, place(p.o, row) + c,
                      load_element(operands.in(Operand::q), p.dtype, place(p.q, row) + p.dim_qk - 1 - c));
    });
  }
  std::string describe() const override { return "one thread\n"; }

 private:
  const bool forgets_the_last_;
};

template <bool right>
class ToyKernel final : public Kernel {
 public:
  std::string_view name() const override { return right ? "test/toy" : "test/wrong-toy"; }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  const Operation& operation() const override { return toy; }
  bool selectable() const override { return right; }
  std::string refusal(const Problem&, const Context&) const override { return {}; }
  double predicted_seconds(const Problem&, const Context&) const override { return 1e-6; }
  std::unique_ptr<const Plan> plan(const Problem& problem, Context&) const override {
    return std::make_unique<ToyPlan>(*this, problem, !right);
  }
};
const Registration<ToyKernel<true>> right_registration;
const Registration<ToyKernel<false>> wrong_registration;

void fill(Tensors& tensors, lab::InputKind, uint64_t seed, cpu::Threads&) {
  const Problem& p = tensors.problem;
  lab::stats::Random random(seed);
  for_each_row(p, [&](const RowId& row) {
    for (int64_t c = 0; c < p.dim_qk; ++c)
      store_element(tensors[Operand::q].data(), p.dtype, place(p.q, row) + c, static_cast<float>(random.normal()));
  });
}

void reference_row(const Problem& p, const Operands& inputs, const RowId& row, double* o, double* lse) {
  for (int64_t c = 0; c < p.dim_v; ++c)
    o[p.dim_v - 1 - c] = load_element(inputs.in(Operand::q), p.dtype, place(p.q, row) + c);
  *lse = 0;
}

lab::Ideal ideal_rows_of(const Tensors& tensors, std::span<const RowId> rows, cpu::Threads&) {
  lab::Ideal ideal;
  ideal.dim = tensors.problem.dim_v;
  ideal.ids.assign(rows.begin(), rows.end());
  ideal.rows.resize(rows.size());
  for (const RowId& row : rows) {
    std::vector<double> o(static_cast<size_t>(ideal.dim));
    double lse = 0;
    reference_row(tensors.problem, tensors.input_operands(), row, o.data(), &lse);
    ideal.o.insert(ideal.o.end(), o.begin(), o.end());
  }
  return ideal;
}

constexpr lab::CheckMethod method{.operation = &toy,
                                  .fill = fill,
                                  .reference_row = reference_row,
                                  .ideal_rows = ideal_rows_of,
                                  .oracles = {},
                                  .problems_like = nullptr};
const lab::CheckMethodRegistration method_registration(method);

constexpr const char* text = "toy b2 h3 q5 d8 f16";

TEST(ToyOperation, PrintsAndParses) {
  for (const char* problem : {text, "toy b1 h1 q1 d512 f32", "toy b2 h2 q7 d16 bf16 bhsd"})
    EXPECT_EQ(to_string(parse_problem(problem)), problem);
  EXPECT_THAT([] { parse_problem("toy b1 h1 q1 k3 d8 f32"); },
              testing::ThrowsMessage<Error>(HasSubstr("'k3' in problem 'toy b1 h1 q1 k3 d8 f32' is not understood")));
  EXPECT_THAT([] { parse_problem("toy b1 h1 q1 d8 f32 sink"); }, testing::ThrowsMessage<Error>(HasSubstr("'sink'")));
}

TEST(ToyOperation, IsSelectedPlannedAndExplained) {
  Context context{attune_options{}};
  const std::string explanation = context.explain(parse_problem(text));
  EXPECT_THAT(explanation, HasSubstr("kernel: test/toy\nwhy: the only kernel that can take it"));
  EXPECT_THAT(explanation, HasSubstr("one thread"));
  const Problem problem = parse_problem(text);
  EXPECT_EQ(context.plan_for(problem), context.plan_for(problem)) << "a plan is made once";
}

TEST(ToyOperation, WhatItNeedsIsAskedFor) {
  Context context{attune_options{}};
  Operands operands;
  EXPECT_THAT([&] { context.run(parse_problem(text), operands, nullptr); },
              testing::ThrowsMessage<Error>(HasSubstr("args.q is NULL; it must point to the queries")));
  uint16_t memory[2 * 3 * 5 * 8] = {};
  operands.set(Operand::q, memory);
  operands.set(Operand::o, memory);
  EXPECT_THAT([&] { context.run(parse_problem(text), operands, nullptr); },
              testing::ThrowsMessage<Error>(HasSubstr("which is args.q too; the output must not be an input")));
}

TEST(ToyOperation, PassesTheCheckAndItsMistakeIsFound) {
  cpu::Threads threads{attune_options{}};
  const auto executor = lab::make_cpu_executor();
  const auto reference = lab::make_cpu_reference(threads);
  lab::Checker checker(*executor, *reference, threads);
  EXPECT_THAT(executor->kernels(toy), testing::ElementsAre("test/toy", "test/wrong-toy"));
  for (const lab::Storage storage : lab::all_storages) {
    lab::Case c{text, "", lab::InputKind::normal, 1, storage, std::nullopt};
    EXPECT_TRUE(checker.check(c).ok()) << checker.check(c).judgement.failure;
    c.kernel = "test/wrong-toy";
    EXPECT_FALSE(checker.check(c).ok());
  }
}

TEST(ToyOperation, IsTimed) {
  cpu::Threads threads{attune_options{}};
  const auto inputs = std::make_shared<lab::InputSource>(parse_problem(text), threads);
  lab::Protocol protocol;
  protocol.rounds = 5;
  protocol.samples = 2;
  lab::Session session(protocol);
  session.add(lab::cpu_forward_contender(lab::library_callee("toy", lab::Library::own(), inputs->problem(), "test/toy"),
                                         inputs));
  EXPECT_GT(session.run().analysis.summaries.front().seconds, 0);
}

}  // namespace
}  // namespace attune
