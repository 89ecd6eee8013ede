// Problems without rows or without keys are defined, on every kernel of the CPU.
#include <gtest/gtest.h>

#include <cmath>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"
#include "tests/support/forward_call.hpp"

namespace attune {
namespace {

class Empty : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    attune_options options{};
    options.struct_size = sizeof options;
    options.kernel = GetParam().empty() ? nullptr : GetParam().c_str();
    ASSERT_EQ(attune_create(&options, &context_), ATTUNE_OK) << attune_last_error();
  }
  void TearDown() override { attune_destroy(context_); }

  attune_context* context_ = nullptr;
};

// Those that this CPU can run.
std::vector<std::string> cpu_kernels() {
  std::vector<std::string> names{""};
  const Context context{attune_options{}};
  const Problem simple = parse_problem("fwd b1 h1/1 q1 k1 d16 f16");
  for (const Kernel* kernel : kernels())
    if (kernel->device_kind() == DeviceKind::cpu && kernel->refusal(simple, context).empty())
      names.emplace_back(kernel->name());
  return names;
}

TEST_P(Empty, NothingToWriteNeedsNoPointers) {
  for (const char* problem :
       {"fwd b0 h8/4 q5 k7 d16 f16", "fwd b2 h0/4 q5 k7 d16 f16", "fwd b2 h0/0 q5 k7 d16 f16",
        "fwd b2 h8/4 q0 k7 d16 f16", "fwd b2 h8/4 q0 k0 d16 f32 sink bias=bhqk mask=bhqk used-q used-k",
        "fwd b2 h8/4 q5 k7 d16 bf16 var=0,9", "fwd b0 h8/4 q5 k7 d16 bf16 var"}) {
    const attune_forward_desc desc = desc_from(parse_problem(problem));
    attune_forward_args args{};
    args.struct_size = sizeof args;
    EXPECT_EQ(attune_prepare(context_, &desc), ATTUNE_OK) << problem << ": " << attune_last_error();
    EXPECT_EQ(attune_forward(context_, &desc, &args, nullptr), ATTUNE_OK) << problem << ": " << attune_last_error();
  }
}

// Rows that see no key: output 0, LSE -inf, or the sink.
TEST_P(Empty, WithoutKeysTheOutputIsZero) {
  for (const char* problem : {"fwd b2 h4/2 q5 k0 d16 f16", "fwd b2 h4/2 q5 k0 d16/8 f32 sink bias=bhqk mask=bhqk",
                              "fwd b1 h4/2 q5 k7 d16 bf16 var=5,0", "fwd b1 h4/2 q5 k7 d16 bf16 var=5,0 sink bhsd",
                              "fwd b2 h4/2 q5 k0 d8 f16 causal-tl w1,1 cap3"}) {
    test::ForwardCall call(desc_from(parse_problem(problem)));
    test::Numbers numbers(3);
    call.fill_values(numbers);
    if (call.has(ATTUNE_PACKED)) call.cu_seqlens_q = {0, 5};
    const attune_forward_args args = call.args();
    EXPECT_EQ(args.k, nullptr);
    ASSERT_EQ(call.run(context_), ATTUNE_OK) << problem << ": " << attune_last_error();
    call.o.for_each([&](const auto&, int64_t offset) {
      for (int64_t i = 0; i < call.o.dim(); ++i)
        ASSERT_EQ(load_element(call.o.data(), static_cast<Dtype>(call.desc.dtype), offset + i), 0) << problem;
    });
    call.lse.for_each([&](const auto& at, int64_t offset) {
      const float expected = call.has(ATTUNE_SINK) ? call.sink[static_cast<size_t>(at[2])] : -INFINITY;
      ASSERT_EQ(args.lse[offset], expected) << problem;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKernel, Empty, testing::ValuesIn(cpu_kernels()), [](const auto& instance) {
  std::string name = instance.param.empty() ? "selected" : instance.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

}  // namespace
}  // namespace attune
