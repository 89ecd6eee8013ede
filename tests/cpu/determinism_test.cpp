// The bits of a result depend on the problem and its data, not on who computes it: number of threads, lent threads,
// order of tasks, other calls at the same time, where the tensors lie.
#include <gtest/gtest.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <atomic>
#include <cfenv>
#include <cstring>
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

// The workers were started in the environment of a new process, and compute in that of the caller.
TEST_P(CpuThreads, AnyFloatingPointEnvironmentGivesTheSameBits) {
  class Flushing {
   public:
    Flushing() {
#if defined(__SSE__)
      _mm_setcsr(before_ | 0x8040);  // results and operands below the normal numbers count as 0
#endif
    }
    ~Flushing() {
#if defined(__SSE__)
      _mm_setcsr(before_);
#endif
    }

   private:
#if defined(__SSE__)
    unsigned before_ = _mm_getcsr();
#endif
  };
  const ForcedContext one(GetParam(), 1), four(GetParam(), 4);
  for (const char* text : problems) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    ForwardCall call(desc);
    fill(call);
    // Of values so small that many products are subnormal.
    call.v.for_each([&](const auto&, int64_t offset) {
      for (int64_t i = 0; i < desc.dim_v; ++i) {
        const auto dtype = static_cast<Dtype>(desc.dtype);
        store_element(call.v.data(), dtype, offset + i, load_element(call.v.data(), dtype, offset + i) * 0x1p-126f);
      }
    });
    const auto results = [&](const ForcedContext& context, int rounding, bool flushes) {
      const auto run = [&] { return context.forward(call.desc, call.args()); };
      std::fesetround(rounding);
      attune_status status = ATTUNE_OK;
      if (flushes) {
        const Flushing flushing;
        status = run();
      } else {
        status = run();
      }
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(status, ATTUNE_OK) << attune_last_error();
      std::vector<uint8_t> bytes = call.o.copy();
      const std::vector<uint8_t> lse = call.lse.copy();
      bytes.insert(bytes.end(), lse.begin(), lse.end());
      return bytes;
    };
    const std::vector<uint8_t> usual = results(one, FE_TONEAREST, false);
    EXPECT_EQ(results(four, FE_TONEAREST, false), usual) << text;
    for (const bool flushes : {false, true})
      for (const int rounding : {FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST})
        EXPECT_EQ(results(four, rounding, flushes), results(one, rounding, flushes))
            << text << ", rounding " << rounding << (flushes ? ", flushing" : "");
    EXPECT_NE(results(one, FE_UPWARD, false), usual) << text << ": rounding changes nothing";
    EXPECT_EQ(results(four, FE_TONEAREST, false), usual) << text;
  }
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

const char* const decode_problems[] = {
    "fwd b3 h32/8 q1 k4096 d16 bf16",
    "fwd b4 h8/8 q1 k1100 d16 f16",
    "fwd b2 h8/4 q2 k2100 d8 f32",
    "fwd b3 h32/2 q1 k2500 d16 bf16 used-k",
};

// Decoding, the order of the work follows that of memory. How keys are split must not.
TEST_P(CpuThreads, DecodingDoesNotDependOnTheLayout) {
  const ForcedContext context(GetParam());
  for (const char* text : decode_problems) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    ForwardCall by_rows(desc);
    fill(by_rows);
    ASSERT_EQ(context.forward(by_rows.desc, by_rows.args()), ATTUNE_OK) << attune_last_error();
    // The same K and V with all rows of a head beside each other.
    const auto copy_by_heads = [&](const attune_strides& from, int64_t dim, const TensorMemory& memory,
                                   attune_strides& to) {
      to = {desc.heads_kv * desc.seq_k * dim, dim, desc.seq_k * dim};
      TensorMemory copy({{{desc.batch, to.batch}, {desc.seq_k, to.row}, {desc.heads_kv, to.head}, {1, 0}}}, dim,
                        bytes_of(static_cast<Dtype>(desc.dtype)));
      const int64_t bytes = bytes_of(static_cast<Dtype>(desc.dtype));
      copy.for_each([&](const auto& at, int64_t offset) {
        const int64_t source = at[0] * from.batch + at[1] * from.row + at[2] * from.head;
        std::memcpy(static_cast<char*>(copy.data()) + offset * bytes,
                    static_cast<const char*>(memory.data()) + source * bytes, static_cast<size_t>(dim * bytes));
      });
      return copy;
    };
    attune_forward_args args = by_rows.args();
    const TensorMemory k = copy_by_heads(by_rows.desc.k, desc.dim_qk, by_rows.k, desc.k);
    const TensorMemory v = copy_by_heads(by_rows.desc.v, desc.dim_v, by_rows.v, desc.v);
    ForwardCall by_heads(desc);
    args.k = k.data();
    args.v = v.data();
    args.o = by_heads.o.data();
    args.lse = static_cast<float*>(by_heads.lse.data());
    ASSERT_EQ(context.forward(desc, args), ATTUNE_OK) << attune_last_error();
    EXPECT_EQ(by_heads.o.copy(), by_rows.o.copy()) << text;
    EXPECT_EQ(by_heads.lse.copy(), by_rows.lse.copy()) << text;
  }
}

// Decoding, a sequence is computed as if it were alone, whatever the batch and the longest sequence of it.
TEST_P(CpuThreads, DecodingDoesNotDependOnTheBatch) {
  const ForcedContext context(GetParam());
  for (const char* text : decode_problems) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    ForwardCall whole(desc);
    fill(whole);
    ASSERT_EQ(context.forward(whole.desc, whole.args()), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> together = whole.o.copy();
    const Problem problem = problem_from(desc);
    const int64_t batch = desc.batch;
    const attune_forward_args all = whole.args();
    desc.batch = 1;
    desc.features &= ~ATTUNE_USED_K;
    for (int64_t b = 0; b < batch; ++b) {
      const auto moved = [&](const void* tensor, const attune_strides& strides) {
        return static_cast<const char*>(tensor) + b * strides.batch * bytes_of(problem.dtype);
      };
      attune_forward_args args = all;
      args.q = moved(all.q, desc.q);
      args.k = moved(all.k, desc.k);
      args.v = moved(all.v, desc.v);
      args.o = const_cast<char*>(moved(all.o, desc.o));
      desc.seq_k = sequence_of(problem, operands_of(all), b).seq_k;
      ASSERT_EQ(context.forward(desc, args), ATTUNE_OK) << attune_last_error();
    }
    EXPECT_EQ(whole.o.copy(), together) << text;
  }
}

}  // namespace
}  // namespace attune::test
