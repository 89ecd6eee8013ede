// The thread pool: every index once, exceptions, nesting, many callers, sleep.
#include "cpu/threads.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "tests/support/with_threads.hpp"

namespace attune::cpu {
namespace {

using test::with_threads;

void expect_each_once(Threads& threads, int64_t count) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
  threads.parallel_for(count, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
  for (int64_t i = 0; i < count; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], 1) << i << " of " << count;
}

TEST(ThreadPool, EachIndexOnce) {
  for (const int size : {1, 2, 3, 7}) {
    Threads threads(with_threads(size));
    EXPECT_EQ(threads.size(), size);
    for (const int64_t count : {0, 1, 2, 3, 100, 10000}) expect_each_once(threads, count);
    for (int i = 0; i < 500; ++i) expect_each_once(threads, 5);
  }
}

TEST(ThreadPool, BodiesRunAtTheSameTime) {
  Threads threads(with_threads(3));
  std::atomic<int> arrived{0};
  // Each body waits for the other two: ends only if three run at once.
  threads.parallel_for(3, [&](int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 3);
}

TEST(ThreadPool, TheFirstExceptionArrivesAndThePoolLivesOn) {
  for (const int size : {1, 4}) {
    Threads threads(with_threads(size));
    for (int i = 0; i < 50; ++i) {
      try {
        threads.parallel_for(100, [](int64_t index) {
          if (index == 37) throw std::runtime_error("index 37");
        });
        FAIL() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "index 37");
      }
    }
    expect_each_once(threads, 100);
  }
}

TEST(ThreadPool, ExceptionsCrossALentHook) {
  attune_options options{};
  options.parallel_for = [](void*, int64_t count, void (*body)(void*, int64_t), void* context) {
    std::thread([&] {
      for (int64_t i = 0; i < count; ++i) body(context, i);
    }).join();
  };
  Threads threads(options);
  EXPECT_THROW(threads.parallel_for(10,
                                    [](int64_t i) {
                                      if (i == 3) throw std::runtime_error("3");
                                    }),
               std::runtime_error);
  expect_each_once(threads, 10);
}

TEST(ThreadPool, NestedLoopsStayOnTheirThread) {
  Threads threads(with_threads(4));
  std::atomic<int> inner{0}, elsewhere{0};
  // Two bodies leave two workers idle, who would have time to join the inner loops.
  threads.parallel_for(2, [&](int64_t) {
    const auto here = std::this_thread::get_id();
    threads.parallel_for(10, [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++inner;
      if (std::this_thread::get_id() != here) ++elsewhere;
    });
  });
  EXPECT_EQ(inner, 20);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ThreadPool, ManyCallersAtOnce) {
  Threads threads(with_threads(3));
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 10; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) threads.parallel_for(13, [&](int64_t index) { total += index; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 10 * 200 * 78);
}

TEST(ThreadPool, CanBeDestroyedAtOnce) {
  for (int i = 0; i < 100; ++i) {
    Threads threads(with_threads(4));
    if (i % 2 == 0) expect_each_once(threads, 8);
  }
}

// How this thread rounds. fegetround() would tell about another unit of the processor.
int rounding_here() {
  volatile float one = 1, tiny = 0x1p-30f;
  if (one + tiny > 1) return FE_UPWARD;
  if (-one - tiny < -1) return FE_DOWNWARD;
  return one - tiny < 1 ? FE_TOWARDZERO : FE_TONEAREST;
}

// With the rounding of the caller, wherever they run and whenever their thread was started; that of the thread returns.
void expect_rounding_of_the_caller(Threads& threads) {
  constexpr int bodies = 3;
  for (const int rounding : {FE_UPWARD, FE_TONEAREST, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    std::atomic<int> arrived{0}, wrong{0};
    threads.parallel_for(bodies, [&](int64_t) {
      ++arrived;
      while (arrived < bodies) std::this_thread::yield();
      if (rounding_here() != rounding) ++wrong;
    });
    EXPECT_EQ(rounding_here(), rounding);
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(wrong, 0) << "rounding " << rounding;
  }
}

TEST(ThreadPool, BodiesComputeInTheEnvironmentOfTheCaller) {
  Threads threads(with_threads(3));
  expect_each_once(threads, 100);
  expect_rounding_of_the_caller(threads);
}

TEST(ThreadPool, LentThreadsComputeInTheEnvironmentOfTheCallerAndKeepTheirOwn) {
  static std::atomic<int> changed{0};
  attune_options options{};
  options.parallel_for = [](void*, int64_t count, void (*body)(void*, int64_t), void* context) {
    std::vector<std::thread> lent;
    for (int64_t i = 0; i < count; ++i)
      lent.emplace_back([=] {
        std::fesetround(FE_DOWNWARD);
        body(context, i);
        if (rounding_here() != FE_DOWNWARD) ++changed;
      });
    for (std::thread& thread : lent) thread.join();
  };
  Threads threads(options);
  expect_rounding_of_the_caller(threads);
  EXPECT_EQ(changed, 0);
}

double process_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

TEST(ThreadPool, CostsNothingWhenIdle) {
  Threads threads(with_threads(4));
  expect_each_once(threads, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the workers to fall asleep
  const double before = process_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(process_seconds() - before, 0.03);
}

TEST(ThreadPool, SizeComesFromOptionsThenEnvironmentThenAffinity) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  unsetenv("ATTUNE_THREADS");
  EXPECT_EQ(Threads(with_threads(0)).size(), CPU_COUNT(&set));
  setenv("ATTUNE_THREADS", "5", 1);
  EXPECT_EQ(Threads(with_threads(0)).size(), 5);
  EXPECT_EQ(Threads(with_threads(2)).size(), 2);
  for (const char* wrong : {"0", "-1", "many", "4 ", "99999"}) {
    setenv("ATTUNE_THREADS", wrong, 1);
    try {
      const Threads threads(with_threads(0));
      ADD_FAILURE() << "accepted " << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.what()).find(wrong), std::string::npos) << error.what();
    }
  }
  unsetenv("ATTUNE_THREADS");
  EXPECT_THROW(Threads(with_threads(-1)), Error);
}

TEST(ThreadScratch, IsAlignedReusedAndNeverShared) {
  Threads threads(with_threads(4));
  void* first = nullptr;
  {
    const auto scratch = threads.scratch(1000);
    first = scratch.data();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_NE(threads.scratch(1000).data(), first);
  }
  std::atomic<int> clashes{0};
  threads.parallel_for(200, [&](int64_t i) {
    const auto scratch = threads.scratch(static_cast<size_t>(1000 + i * 64));
    auto* words = static_cast<std::atomic<int64_t>*>(scratch.data());
    words[0] = i;
    std::this_thread::yield();
    if (words[0] != i) ++clashes;
  });
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadScratch, GoesToTheThreadThatHadIt) {
  Threads threads(with_threads(1));
  std::unique_ptr<Threads::Scratch> held(new Threads::Scratch(threads.scratch(1000)));
  const void* const mine = held->data();
  std::latch taken(1), given_back(1);
  std::thread other([&] {
    const auto scratch = threads.scratch(1000);
    EXPECT_NE(scratch.data(), mine);
    taken.count_down();
    given_back.wait();
  });
  taken.wait();
  held.reset();
  given_back.count_down();
  other.join();  // its memory came back last
  EXPECT_EQ(threads.scratch(1000).data(), mine);
}

}  // namespace
}  // namespace attune::cpu
