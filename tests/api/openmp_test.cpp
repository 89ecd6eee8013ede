// The threads of an OpenMP runtime in place of the library's own: a fake runtime that counts, and those of GCC and LLVM
// where they are installed.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "cpu/threads.hpp"
#include "tests/support/child.hpp"
#include "tests/support/forward_call.hpp"

namespace attune {
namespace {

using test::status_of_child;
using testing::HasSubstr;

// One runtime per process, as in life.
std::atomic<int> fake_threads{3}, fake_regions{0}, wrong_arguments{0};

void fake_gomp_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
  ++fake_regions;
  if (threads != 0 || flags != 0) ++wrong_arguments;
  std::vector<std::thread> others;
  for (int i = 1; i < fake_threads; ++i) others.emplace_back(body, data);
  body(data);
  for (std::thread& other : others) other.join();
}

attune_options options_with(attune_gomp_parallel gomp_parallel, int (*omp_get_max_threads)()) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.gomp_parallel = gomp_parallel;
  options.omp_get_max_threads = omp_get_max_threads;
  return options;
}

attune_options fake_runtime(int threads) {
  fake_threads = threads;
  fake_regions = wrong_arguments = 0;
  return options_with(fake_gomp_parallel, [] { return fake_threads.load(); });
}

class ContextWith {
 public:
  explicit ContextWith(const attune_options& options) {
    EXPECT_EQ(attune_create(&options, &context_), ATTUNE_OK) << attune_last_error();
  }
  ~ContextWith() { attune_destroy(context_); }
  ContextWith(const ContextWith&) = delete;
  ContextWith& operator=(const ContextWith&) = delete;

  std::vector<uint8_t> forward(const char* problem) const {
    test::ForwardCall call(desc_from(parse_problem(problem)));
    test::Numbers numbers(5);
    call.fill_values(numbers);
    const attune_forward_args args = call.args();
    EXPECT_EQ(attune_forward(context_, &call.desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
    std::vector<uint8_t> results = call.o.copy();
    const std::vector<uint8_t> lse = call.lse.copy();
    results.insert(results.end(), lse.begin(), lse.end());
    return results;
  }

  std::string explain(const char* problem) const {
    const attune_forward_desc desc = desc_from(parse_problem(problem));
    char text[4096];
    EXPECT_EQ(attune_explain(context_, &desc, text, sizeof text, nullptr), ATTUNE_OK) << attune_last_error();
    return text;
  }

 private:
  attune_context* context_ = nullptr;
};

constexpr const char* some_problem = "fwd b2 h4/2 q150 k130 d32 f16 causal-br";
constexpr const char* small_problem = "fwd b1 h2/2 q4 k4 d8 f32";

attune_options own_pool() {
  attune_options options{};
  options.struct_size = sizeof options;
  return options;
}

// Bodies that wait for each other: this ends only if as many run at once.
void meet(cpu::Threads& threads, int count) {
  std::atomic<int> arrived{0};
  threads.parallel_for(count, [&](int64_t) {
    ++arrived;
    while (arrived < count) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, count);
}

TEST(OpenMPThreads, GiveTheSameBits) {
  const std::vector<uint8_t> expected = ContextWith(own_pool()).forward(some_problem);
  for (const int threads : {2, 3, 7}) {
    const ContextWith context(fake_runtime(threads));
    EXPECT_EQ(context.forward(some_problem), expected) << threads;
    EXPECT_GT(fake_regions, 0);
    EXPECT_EQ(wrong_arguments, 0);
  }
}

TEST(OpenMPThreads, AreAsManyAsTheRuntimeSaysAtEachCall) {
  const ContextWith context(fake_runtime(5));
  EXPECT_THAT(context.explain(some_problem), HasSubstr("threads: 5\n"));
  const std::vector<uint8_t> expected = context.forward(some_problem);
  fake_threads = 1;
  fake_regions = 0;
  EXPECT_THAT(context.explain(some_problem), HasSubstr("threads: 1\n"));
  EXPECT_EQ(context.forward(some_problem), expected);
  EXPECT_EQ(fake_regions, 0) << "one thread needs no region";
  fake_threads = 2;
  EXPECT_EQ(context.forward(some_problem), expected);
  EXPECT_GT(fake_regions, 0);
}

TEST(OpenMPThreads, AreNotAskedForSmallProblems) {
  const ContextWith context(fake_runtime(4));
  context.forward(small_problem);
  EXPECT_EQ(fake_regions, 0);
}

TEST(OpenMPThreads, RunAtTheSameTimeAndNestedLoopsStayOnOne) {
  cpu::Threads threads(fake_runtime(3));
  meet(threads, 3);
  EXPECT_EQ(fake_regions, 1);
  std::atomic<int> inner{0};
  threads.parallel_for(3, [&](int64_t) { threads.parallel_for(10, [&](int64_t) { ++inner; }); });
  EXPECT_EQ(inner, 30);
  EXPECT_EQ(fake_regions, 2);
}

TEST(OpenMPThreads, ExceptionsDoNotLeaveTheRegion) {
  cpu::Threads threads(fake_runtime(3));
  const auto spoilt = [&] {
    threads.parallel_for(100, [](int64_t i) {
      if (i % 3 == 0) throw std::runtime_error("a third of the indices");
    });
  };
  for (int i = 0; i < 20; ++i) EXPECT_THROW(spoilt(), std::runtime_error);
  EXPECT_EQ(fake_regions, 20);
  meet(threads, 3);
}

TEST(OpenMPThreads, ManyCallersHaveRegionsOfTheirOwn) {
  cpu::Threads threads(fake_runtime(2));
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) threads.parallel_for(13, [&](int64_t index) { total += index; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 78);
  EXPECT_EQ(fake_regions, 4 * 50);
}

TEST(OpenMPOptions, ThatContradictEachOtherAreRefused) {
  attune_context* context = nullptr;
  attune_options options = fake_runtime(2);
  options.omp_get_max_threads = nullptr;
  EXPECT_EQ(attune_create(&options, &context), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("options.omp_get_max_threads is NULL and options.gomp_parallel is not"));
  options = fake_runtime(2);
  options.gomp_parallel = nullptr;
  EXPECT_EQ(attune_create(&options, &context), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("options.gomp_parallel is NULL and options.omp_get_max_threads is not"));
  options = fake_runtime(2);
  options.parallel_for = [](void*, int64_t, void (*)(void*, int64_t), void*) {};
  EXPECT_EQ(attune_create(&options, &context), ATTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(attune_last_error(), HasSubstr("options.gomp_parallel is not NULL; it must be when"));
  EXPECT_EQ(context, nullptr);
}

// A program of ABI version 1, whose options end before these fields.
TEST(OpenMPOptions, OfAnOlderHeaderAreNotRead) {
  attune_options options = fake_runtime(3);
  options.struct_size = offsetof(attune_options, gomp_parallel);
  ContextWith(options).forward(some_problem);
  EXPECT_EQ(fake_regions, 0);
}

TEST(ForkedOpenMP, AChildStartsNoRegion) {
  const ContextWith context(fake_runtime(3));
  const std::vector<uint8_t> expected = context.forward(some_problem);
  EXPECT_GT(fake_regions, 0);
  fake_regions = 0;
  const auto child = [&] { return context.forward(some_problem) == expected && fake_regions == 0; };
  EXPECT_EQ(status_of_child(child), 0);
  EXPECT_EQ(context.forward(some_problem), expected);
  EXPECT_GT(fake_regions, 0);
}

TEST(ForkedOpenMP, AChildThatComputesAloneStartsNone) {
  const ContextWith context(fake_runtime(3));
  const std::vector<uint8_t> expected = context.forward(some_problem);
  const auto child = [&] {
    fake_threads = 1;
    const bool same = context.forward(some_problem) == expected;
    return same && std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}) == 1;
  };
  EXPECT_EQ(status_of_child(child), 0);
}

class RealOpenMP : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // Never closed: its threads remain.
    void* const library = dlopen(GetParam(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) GTEST_SKIP() << GetParam() << " is not installed";
    const auto find = [library](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      ASSERT_NE(function, nullptr) << name;
    };
    attune_gomp_parallel gomp_parallel = nullptr;
    int (*omp_get_max_threads)() = nullptr;
    find("GOMP_parallel", gomp_parallel);
    find("omp_get_max_threads", omp_get_max_threads);
    find("omp_set_num_threads", set_num_threads_);
    options_ = options_with(gomp_parallel, omp_get_max_threads);
  }

  attune_options options_{};
  void (*set_num_threads_)(int) = nullptr;
};

TEST_P(RealOpenMP, GivesTheSameBits) {
  const std::vector<uint8_t> expected = ContextWith(own_pool()).forward(some_problem);
  const ContextWith context(options_);
  for (const int threads : {1, 3, 2}) {
    set_num_threads_(threads);
    EXPECT_EQ(context.forward(some_problem), expected) << threads;
  }
}

TEST_P(RealOpenMP, RunsBodiesAtTheSameTimeAndPassesExceptionsOn) {
  set_num_threads_(3);
  cpu::Threads threads(options_);
  EXPECT_EQ(threads.size(), 3);
  for (int i = 0; i < 20; ++i) {
    meet(threads, 3);
    EXPECT_THROW(threads.parallel_for(50, [](int64_t) { throw std::runtime_error("each"); }), std::runtime_error);
  }
}

TEST_P(RealOpenMP, DoesNotHangAForkedChild) {
  set_num_threads_(3);
  const ContextWith context(options_);
  const std::vector<uint8_t> expected = context.forward(some_problem);
  EXPECT_EQ(status_of_child([&] { return context.forward(some_problem) == expected; }), 0);
  EXPECT_EQ(context.forward(some_problem), expected);
}

std::string name_of(const testing::TestParamInfo<const char*>& info) {
  const std::string file = info.param;
  return file.substr(0, file.find('.'));
}

INSTANTIATE_TEST_SUITE_P(Runtimes, RealOpenMP, testing::Values("libgomp.so.1", "libomp.so.5", "libiomp5.so"), name_of);

}  // namespace
}  // namespace attune
