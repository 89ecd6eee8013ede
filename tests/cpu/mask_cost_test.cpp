// What boolean masks cost. A branch per element would be foreseen where a mask shows everything, and take 2.7 times as
// long where it has zeros anywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

using CpuMasks = CpuKernel;
ATTUNE_FOR_EACH_CPU_KERNEL(CpuMasks);

// Of this thread alone: others may have the processor meanwhile.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST_P(CpuMasks, ZerosAnywhereCostNoMoreThanNone) {
  if (small_budget()) GTEST_SKIP() << "timings of a build with sanitizers say nothing";
  constexpr double enough_seconds = 0.1, most_ratio = 1.5;
  const ForcedContext context(GetParam(), 1);
  for (const char* text : {"fwd b1 h1/1 q128 k512 d16 bf16 mask=11qk", "fwd b1 h1/1 q128 k512 d16 f32 mask=11qk"}) {
    ForwardCall whole(desc_from(parse_problem(text))), scattered(whole.desc);
    Numbers numbers(1), same_numbers(1);
    whole.fill_values(numbers);
    scattered.fill_values(same_numbers);
    std::memset(whole.mask.data(), 1, static_cast<size_t>(whole.mask.bytes()));
    auto* const bytes = static_cast<uint8_t*>(scattered.mask.data());
    for (int64_t i = 0; i < scattered.mask.bytes(); ++i) bytes[i] = numbers.one_in(2) ? 0 : 1;
    const auto seconds = [&](const ForwardCall& call) {
      const double start = thread_seconds();
      EXPECT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
      return thread_seconds() - start;
    };
    double quickest_whole = 1e9, quickest_scattered = 1e9, spent = 0;
    for (int round = 0; round < 3 || (round < 200 && spent < enough_seconds); ++round) {
      const double of_whole = seconds(whole), of_scattered = seconds(scattered);
      quickest_whole = std::min(quickest_whole, of_whole);
      quickest_scattered = std::min(quickest_scattered, of_scattered);
      spent += of_whole + of_scattered;
    }
    RecordProperty("ratio", std::to_string(quickest_scattered / quickest_whole));
    EXPECT_LT(quickest_scattered, quickest_whole * most_ratio) << text;
  }
}

}  // namespace
}  // namespace attune::test
