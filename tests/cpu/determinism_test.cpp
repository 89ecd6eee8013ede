// The bits of a result depend on the problem and its data, not on who computes it: number of threads, lent threads,
// order of tasks, other calls at the same time, where the tensors lie.
#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <thread>
#include <vector>

#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

using CpuThreads = CpuKernel;
ATTUNE_FOR_EACH_CPU_KERNEL(CpuThreads);

const char* const all_problems[] = {
    "fwd b2 h4/2 q150 k200 d40 f16 causal-br sink",
    "fwd b1 h3/1 q1 k3000 d72 f32",
    "fwd b3 h2/2 q130 k260 d16 bf16 mask=b1qk bias=1h1k cap10",
    "fwd b1 h2/2 q100 k2100 d32 bf16",
    "fwd b1 h4/4 q1 k5000 d64 f16",
    "fwd b20 h8/4 q1 k1100 d72 bf16",
    "fwd b1 h2/1 q300 k300 d64/48 f32 w50,0",
};
const std::span problems = std::span(all_problems).first(small_budget() ? 3 : std::size(all_problems));

void fill(ForwardCall& call) {
  Numbers numbers(17);
  call.fill_lengths(numbers);
  call.fill_values(numbers);
}

std::vector<uint8_t> results_of(const ForcedContext& context, const char* text) {
  attune_forward_desc desc = desc_from(parse_problem(text));
  desc.features |= ATTUNE_LSE;
  ForwardCall call(desc);
  fill(call);
  EXPECT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
  std::vector<uint8_t> results = call.o.copy();
  const std::vector<uint8_t> lse = call.lse.copy();
  results.insert(results.end(), lse.begin(), lse.end());
  return results;
}

TEST_P(CpuThreads, AnyNumberOfThreadsGivesTheSameBits) {
  for (const char* text : problems) {
    const std::vector<uint8_t> one = results_of(ForcedContext(GetParam(), 1), text);
    for (const int threads : {2, 3, 7})
      EXPECT_EQ(results_of(ForcedContext(GetParam(), threads), text), one) << text << " with " << threads << " threads";
  }
}

TEST_P(CpuThreads, LentThreadsInAnyOrderGiveTheSameBits) {
  const auto backwards = [](void*, int64_t count, void (*body)(void*, int64_t), void* context) {
    for (int64_t i = count; i-- > 0;) body(context, i);
  };
  const auto on_four = [](void*, int64_t count, void (*body)(void*, int64_t), void* context) {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (int64_t i; (i = next.fetch_add(1)) < count;) body(context, i);
      });
    for (std::thread& thread : threads) thread.join();
  };
  for (const char* text : problems) {
    const std::vector<uint8_t> own = results_of(ForcedContext(GetParam(), 1), text);
    EXPECT_EQ(results_of(ForcedContext(GetParam(), 0, +backwards), text), own) << text;
    EXPECT_EQ(results_of(ForcedContext(GetParam(), 0, +on_four), text), own) << text;
  }
}

TEST_P(CpuThreads, OneContextServesManyThreadsAtOnce) {
  const ForcedContext context(GetParam(), 3);
  std::vector<std::vector<uint8_t>> expected;
  for (const char* text : problems) expected.push_back(results_of(context, text));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t t = 0; t < (small_budget() ? 3 : 6); ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < std::size(problems); ++i) {
        const size_t which = (i + t) % std::size(problems);
        if (results_of(context, problems[which]) != expected[which]) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Row i of a long problem is computed like row i of a problem cut to fewer rows, which ends within four keys.
TEST_P(CpuThreads, RowsDoNotDependOnTheirNeighbours) {
  attune_forward_desc desc = desc_from(parse_problem("fwd b1 h1/1 q300 k300 d64 f32 causal-tl"));
  ForwardCall whole(desc);
  fill(whole);
  const ForcedContext context(GetParam());
  ASSERT_EQ(context.forward(whole.desc, whole.args()), ATTUNE_OK) << attune_last_error();
  desc.seq_q = 139;
  ForwardCall cut(desc);
  attune_forward_args args = whole.args();
  args.o = cut.o.data();
  args.lse = static_cast<float*>(cut.lse.data());
  ASSERT_EQ(context.forward(desc, args), ATTUNE_OK) << attune_last_error();
  const std::vector<uint8_t> all = whole.o.copy();
  EXPECT_EQ(cut.o.copy(), std::vector<uint8_t>(all.begin(), all.begin() + 139 * 64 * 4));
}

// Decoding, a task may take several KV heads: each is computed as if it were alone.
TEST_P(CpuThreads, HeadsDoNotDependOnTheirNeighbours) {
  const ForcedContext context(GetParam());
  for (const char* text :
       {"fwd b64 h8/4 q1 k200 d72 bf16", "fwd b64 h4/4 q1 k200 d64 f16", "fwd b64 h8/4 q2 k90 d40 f32"}) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    ForwardCall whole(desc);
    fill(whole);
    ASSERT_EQ(context.forward(whole.desc, whole.args()), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> together = whole.o.copy();
    const int64_t heads = desc.heads_kv, group = desc.heads_q / heads;
    desc.heads_kv = 1;
    desc.heads_q = group;
    const auto moved = [&](const void* tensor, int64_t elements) {
      return static_cast<const char*>(tensor) + elements * (desc.dtype == ATTUNE_F32 ? 4 : 2);
    };
    for (int64_t head = 0; head < heads; ++head) {
      attune_forward_args args = whole.args();
      args.q = moved(args.q, head * group * desc.q.head);
      args.k = moved(args.k, head * desc.k.head);
      args.v = moved(args.v, head * desc.v.head);
      args.o = const_cast<char*>(moved(args.o, head * group * desc.o.head));
      ASSERT_EQ(context.forward(desc, args), ATTUNE_OK) << attune_last_error();
    }
    EXPECT_EQ(whole.o.copy(), together) << text;
  }
}

}  // namespace
}  // namespace attune::test
