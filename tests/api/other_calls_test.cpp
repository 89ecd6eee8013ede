// What the C interface promises beside attention itself: NULL arguments, versions of the structs, explanations, errors
// per thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/support/forward_call.hpp"

namespace attune {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CApi : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(attune_create(nullptr, &context_), ATTUNE_OK) << attune_last_error(); }
  void TearDown() override { attune_destroy(context_); }

  static void expect_invalid(attune_status status, const char* argument, const char* allowed) {
    EXPECT_EQ(status, ATTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(attune_last_error(), AllOf(HasSubstr(argument), HasSubstr(allowed)));
  }

  attune_context* context_ = nullptr;
  attune_forward_desc desc_ = desc_from(parse_problem("fwd b1 h1 q2 k2 d4 f32"));
};

TEST_F(CApi, NullArgumentsAreNamed) {
  attune_forward_args args{};
  args.struct_size = sizeof args;
  attune_merge_desc merge{};
  merge.struct_size = sizeof merge;
  uint64_t bytes = 0;
  char text[8];
  size_t length = 0;
  expect_invalid(attune_create(nullptr, nullptr), "context is NULL", "must point");
  expect_invalid(attune_prepare(nullptr, &desc_), "context is NULL", "must point");
  expect_invalid(attune_prepare(context_, nullptr), "desc is NULL", "must point");
  expect_invalid(attune_workspace_bytes(nullptr, &desc_, &bytes), "context is NULL", "must point");
  expect_invalid(attune_workspace_bytes(context_, nullptr, &bytes), "desc is NULL", "must point");
  expect_invalid(attune_workspace_bytes(context_, &desc_, nullptr), "bytes is NULL", "must point");
  expect_invalid(attune_forward(nullptr, &desc_, &args, nullptr), "context is NULL", "must point");
  expect_invalid(attune_forward(context_, nullptr, &args, nullptr), "desc is NULL", "must point");
  expect_invalid(attune_forward(context_, &desc_, nullptr, nullptr), "args is NULL", "must point");
  expect_invalid(attune_merge(context_, nullptr, nullptr, nullptr), "desc is NULL", "must point");
  expect_invalid(attune_merge(context_, &merge, nullptr, nullptr), "args is NULL", "must point");
  expect_invalid(attune_explain(nullptr, &desc_, text, sizeof text, &length), "context is NULL", "must point");
  expect_invalid(attune_explain(context_, nullptr, text, sizeof text, &length), "desc is NULL", "must point");
  expect_invalid(attune_explain(context_, &desc_, nullptr, 5, &length), "buffer is NULL", "capacity (5)");
  attune_destroy(nullptr);
}

TEST_F(CApi, AStreamOnTheCpuIsRefused) {
  test::ForwardCall call(desc_);
  const attune_forward_args args = call.args();
  int not_a_stream = 0;
  expect_invalid(attune_forward(context_, &desc_, &args, &not_a_stream), "stream is 0x", "must be NULL");
  EXPECT_TRUE(call.outputs_untouched());
}

TEST_F(CApi, WrongOptionsAreNamed) {
  attune_context* context = context_;
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = "cpu/imaginary";
  expect_invalid(attune_create(&options, &context), "options.kernel is 'cpu/imaginary'", "known kernels are");
  EXPECT_EQ(context, nullptr);
  options.kernel = nullptr;
  options.threads = -3;
  expect_invalid(attune_create(&options, &context), "options.threads is -3", "0");
  options = {};
  expect_invalid(attune_create(&options, &context), "options->struct_size is 0", "must be sizeof");
}

TEST_F(CApi, AnAbsentDeviceHasItsOwnStatus) {
  test::ForwardCall call(desc_);
  call.desc.device_kind = ATTUNE_CUDA;
  call.desc.device_index = 99;
  const attune_forward_args args = call.args();
  EXPECT_EQ(attune_prepare(context_, &call.desc), ATTUNE_NO_DEVICE);
  EXPECT_EQ(attune_forward(context_, &call.desc, &args, nullptr), ATTUNE_NO_DEVICE);
  EXPECT_STRNE(attune_last_error(), "");
  EXPECT_TRUE(call.outputs_untouched());
}

TEST_F(CApi, AKernelOfAnotherDeviceIsUnsupported) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = "any/fwd";
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(&options, &context), ATTUNE_OK) << attune_last_error();
  test::ForwardCall call(desc_);
  const attune_forward_args args = call.args();
  EXPECT_EQ(attune_forward(context, &desc_, &args, nullptr), ATTUNE_UNSUPPORTED);
  EXPECT_THAT(attune_last_error(), AllOf(HasSubstr("fwd b1 h1/1 q2 k2 d4 f32"), HasSubstr("any/fwd")));
  EXPECT_TRUE(call.outputs_untouched());
  attune_destroy(context);
}

TEST_F(CApi, AWrongWorkspaceIsRefused) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = "cpu/unfused";  // the scores go to the workspace
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(&options, &context), ATTUNE_OK) << attune_last_error();
  uint64_t bytes = 0;
  ASSERT_EQ(attune_workspace_bytes(context, &desc_, &bytes), ATTUNE_OK);
  ASSERT_GT(bytes, 0u);
  test::ForwardCall call(desc_);
  test::Numbers numbers(1);
  call.fill_values(numbers);
  alignas(256) static char workspace[65536];
  ASSERT_LT(bytes, sizeof workspace);
  attune_forward_args args = call.args();
  args.workspace_bytes = bytes;
  expect_invalid(attune_forward(context, &desc_, &args, nullptr), "args.workspace is NULL", "workspace_bytes");
  args.workspace = workspace + 128;
  expect_invalid(attune_forward(context, &desc_, &args, nullptr), "args.workspace is 0x", "multiple of 256 bytes");
  args.workspace = workspace;
  args.workspace_bytes = bytes - 1;
  expect_invalid(attune_forward(context, &desc_, &args, nullptr), "args.workspace_bytes is", "at least");
  EXPECT_TRUE(call.outputs_untouched());
  args.workspace_bytes = bytes;
  EXPECT_EQ(attune_forward(context, &desc_, &args, nullptr), ATTUNE_OK) << attune_last_error();
  attune_destroy(context);
}

// A program built with a newer header may run with this library as long as it asks for nothing new.
TEST_F(CApi, AStructOfANewerHeaderIsReadIfItsNewFieldsAreZero) {
  struct Newer {
    attune_forward_desc desc;
    uint64_t later[2];
  } newer{desc_, {0, 0}};
  newer.desc.struct_size = sizeof newer;
  EXPECT_EQ(attune_prepare(context_, &newer.desc), ATTUNE_OK) << attune_last_error();
  newer.later[1] = 1;
  expect_invalid(attune_prepare(context_, &newer.desc), "byte", "must be 0");
}

// A program built with an older header passes a shorter struct: what it lacks counts as 0, and is not read.
TEST_F(CApi, AStructOfAnOlderHeaderCountsAsZeroBeyondItsEnd) {
  attune_forward_desc older = desc_;
  older.struct_size = offsetof(attune_forward_desc, window_left);
  older.window_left = older.window_right = -99;
  older.features |= ATTUNE_WINDOW;  // reads 0, 0: each row sees one key
  EXPECT_EQ(attune_prepare(context_, &older), ATTUNE_OK) << attune_last_error();
  older.struct_size = sizeof older;
  expect_invalid(attune_prepare(context_, &older), "desc.window_left is -99", "-1");
  // q2 lies past the end of this one, so the dims are 0.
  older.struct_size = offsetof(attune_forward_desc, dim_qk);
  expect_invalid(attune_prepare(context_, &older), "desc.dim_qk is 0", "1..512");
}

TEST_F(CApi, AnOlderStructIsNotReadPastItsEnd) {
  const size_t size = offsetof(attune_forward_desc, window_left);
  const auto memory = std::make_unique_for_overwrite<char[]>(size);  // AddressSanitizer guards its end
  desc_.struct_size = static_cast<uint32_t>(size);
  std::memcpy(memory.get(), &desc_, size);
  const auto* shorter = reinterpret_cast<const attune_forward_desc*>(memory.get());
  EXPECT_EQ(attune_prepare(context_, shorter), ATTUNE_OK) << attune_last_error();
}

TEST_F(CApi, ExplanationsAreCutAsSnprintfCuts) {
  size_t length = 0;
  ASSERT_EQ(attune_explain(context_, &desc_, nullptr, 0, &length), ATTUNE_OK) << attune_last_error();
  ASSERT_GT(length, 40u);
  std::string whole(length + 1, '#');
  ASSERT_EQ(attune_explain(context_, &desc_, whole.data(), whole.size(), nullptr), ATTUNE_OK);
  EXPECT_EQ(whole.back(), '\0');
  whole.pop_back();
  EXPECT_EQ(std::strlen(whole.c_str()), length);
  EXPECT_THAT(whole, StartsWith("problem: fwd b1 h1/1 q2 k2 d4 f32\n"));
  EXPECT_THAT(whole, AllOf(HasSubstr("\nkernel: "), HasSubstr("\nwhy: "), HasSubstr("\nworkspace: ")));

  for (const size_t capacity : {size_t{1}, size_t{2}, size_t{17}, length, length + 1}) {
    std::string part(capacity + 3, '#');
    size_t full = 0;
    ASSERT_EQ(attune_explain(context_, &desc_, part.data(), capacity, &full), ATTUNE_OK);
    EXPECT_EQ(full, length);
    EXPECT_STREQ(part.c_str(), whole.substr(0, capacity - 1).c_str());
    EXPECT_EQ(part.substr(capacity), "###");
  }
}

// Who cannot overlap runs in order, and says so.
TEST_F(CApi, OverlapMeansNothingToTheCpu) {
  test::ForwardCall plain(desc_), overlapping(desc_);
  overlapping.desc.features |= ATTUNE_OVERLAP | ATTUNE_KV_READY;
  for (test::ForwardCall* call : {&plain, &overlapping}) {
    test::Numbers numbers(7);
    call->fill_values(numbers);
    ASSERT_EQ(call->run(context_), ATTUNE_OK) << attune_last_error();
  }
  EXPECT_EQ(overlapping.o.copy(), plain.o.copy());
  EXPECT_EQ(overlapping.lse.copy(), plain.lse.copy());
  char text[1024];
  ASSERT_EQ(attune_explain(context_, &overlapping.desc, text, sizeof text, nullptr), ATTUNE_OK);
  EXPECT_THAT(text, HasSubstr("; runs in stream order: it cannot overlap\n"));
  ASSERT_EQ(attune_explain(context_, &plain.desc, text, sizeof text, nullptr), ATTUNE_OK);
  EXPECT_THAT(text, Not(HasSubstr("overlap")));
}

TEST_F(CApi, ErrorTextsBelongToTheirThread) {
  EXPECT_EQ(attune_prepare(context_, nullptr), ATTUNE_INVALID_ARGUMENT);
  const std::string mine = attune_last_error();
  std::string at_first = "unset", theirs;
  std::thread([&] {
    at_first = attune_last_error();
    attune_forward_desc wrong = desc_;
    wrong.dim_v = 999;
    EXPECT_EQ(attune_prepare(context_, &wrong), ATTUNE_INVALID_ARGUMENT);
    theirs = attune_last_error();
  }).join();
  EXPECT_EQ(at_first, "");
  EXPECT_THAT(theirs, HasSubstr("desc.dim_v is 999"));
  EXPECT_EQ(attune_last_error(), mine);
  // A success leaves the text of the last failure alone.
  EXPECT_EQ(attune_prepare(context_, &desc_), ATTUNE_OK);
  EXPECT_EQ(attune_last_error(), mine);
}

TEST_F(CApi, ALongErrorTextIsCutAndClosed) {
  const std::string name(5000, 'x');
  attune_options options{};
  options.struct_size = sizeof options;
  options.kernel = name.c_str();
  attune_context* context = nullptr;
  EXPECT_EQ(attune_create(&options, &context), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(attune_last_error()), 1023u);
  EXPECT_THAT(attune_last_error(), StartsWith("options.kernel is 'xxxx"));
  // And a short one after it shows nothing of the long one.
  EXPECT_EQ(attune_prepare(nullptr, &desc_), ATTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(attune_last_error()), "context is NULL; it must point to a valid object");
}

TEST(CApiVersion, IsThatOfTheHeader) { EXPECT_EQ(attune_abi_version(), uint32_t{ATTUNE_ABI_VERSION}); }

TEST_F(CApi, OneContextServesManyThreads) {
  constexpr int calls = 20;
  const char* const problems[] = {"fwd b1 h2/1 q17 k33 d16 f32 causal-br", "fwd b2 h2/2 q9 k5 d8 f16 sink"};
  std::vector<std::vector<uint8_t>> expected;
  const auto run = [&](const char* problem) {
    test::ForwardCall call(desc_from(parse_problem(problem)));
    test::Numbers numbers(7);
    call.fill_values(numbers);
    const attune_forward_args args = call.args();
    EXPECT_EQ(attune_forward(context_, &call.desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
    return call.o.copy();
  };
  for (const char* problem : problems) expected.push_back(run(problem));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < calls; ++i) EXPECT_EQ(run(problems[t % 2]), expected[t % 2]);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attune
