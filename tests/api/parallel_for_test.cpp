// A host may lend its threads: the hook is used, in any order and number, and the result is the same to the bit.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/support/forward_call.hpp"

namespace attune {
namespace {

struct Host {
  std::atomic<int64_t> calls{0}, bodies{0};
  bool backwards = false;
  int threads = 1;
};

void run_on_host(void* user, int64_t count, void (*body)(void*, int64_t), void* body_context) {
  auto& host = *static_cast<Host*>(user);
  ++host.calls;
  host.bodies += count;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < host.threads; ++t)
    threads.emplace_back([=, &host] {
      for (int64_t i = t; i < count; i += host.threads) body(body_context, host.backwards ? count - 1 - i : i);
    });
  for (std::thread& thread : threads) thread.join();
}

std::vector<uint8_t> forward(const attune_options* options) {
  attune_context* context = nullptr;
  EXPECT_EQ(attune_create(options, &context), ATTUNE_OK) << attune_last_error();
  test::ForwardCall call(desc_from(parse_problem("fwd b2 h4/2 q150 k130 d32 f16 causal-br")));
  test::Numbers numbers(5);
  call.fill_values(numbers);
  const attune_forward_args args = call.args();
  EXPECT_EQ(attune_forward(context, &call.desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
  attune_destroy(context);
  std::vector<uint8_t> results = call.o.copy();
  const std::vector<uint8_t> lse = call.lse.copy();
  results.insert(results.end(), lse.begin(), lse.end());
  return results;
}

TEST(ParallelFor, LentThreadsGiveTheSameBits) {
  const std::vector<uint8_t> own = forward(nullptr);
  for (const int threads : {1, 3})
    for (const bool backwards : {false, true}) {
      Host host;
      host.threads = threads;
      host.backwards = backwards;
      attune_options options{};
      options.struct_size = sizeof options;
      options.parallel_for = run_on_host;
      options.parallel_for_user = &host;
      EXPECT_EQ(forward(&options), own) << threads << " threads" << (backwards ? ", backwards" : "");
      EXPECT_GT(host.calls, 0);
      EXPECT_GT(host.bodies, 1);
    }
}

TEST(ParallelFor, AnyNumberOfThreadsGivesTheSameBits) {
  const std::vector<uint8_t> own = forward(nullptr);
  for (const int32_t threads : {1, 2, 5}) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    EXPECT_EQ(forward(&options), own) << threads;
  }
}

}  // namespace
}  // namespace attune
