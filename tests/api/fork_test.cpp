// A context in forked children, while other threads of the parent are in the middle of calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/child.hpp"
#include "tests/support/forward_call.hpp"
#include "tests/support/merge_desc.hpp"
#include "tests/support/with_threads.hpp"

namespace attune {
namespace {

using test::status_of_child;
using test::with_threads;

// Little work for a test without optimisation, and enough for the library to start threads.
constexpr const char* some_problem = "fwd b1 h4/1 q100 k100 d32 f32";

struct Context {
  explicit Context(const attune_options& options) {
    EXPECT_EQ(attune_create(&options, &handle), ATTUNE_OK) << attune_last_error();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { attune_destroy(handle); }

  attune_context* handle = nullptr;
};

// The bytes of the output, or none if the call failed.
std::vector<uint8_t> forward(attune_context* context, const Problem& problem) {
  test::ForwardCall call(desc_from(problem));
  test::Numbers numbers(5);
  call.fill_values(numbers);
  return call.run(context) == ATTUNE_OK ? call.o.copy() : std::vector<uint8_t>();
}

std::vector<uint8_t> forward(attune_context* context) { return forward(context, parse_problem(some_problem)); }

// A shape that no other number has, of 1 to 400 queries.
Problem problem_of(int64_t number) {
  return parse_problem(fmt::format("fwd b1 h2/1 q{} k{} d2 f32", 1 + number % 400, 40 + number / 400));
}

// Half of one part and half of another.
bool merges(attune_context* context) {
  constexpr int64_t rows = 100, dim = 4;
  const attune_merge_desc desc = test::dense_merge_desc(ATTUNE_F32, ATTUNE_F32, 2, 1, 2, rows, dim);
  const std::vector<float> lse(2 * rows, 0.f), ones(2 * rows * dim, 1.f), threes(2 * rows * dim, 3.f);
  std::vector<float> merged(2 * rows * dim);
  const void* const parts[] = {ones.data(), threes.data()};
  const float* const parts_lse[] = {lse.data(), lse.data()};
  const attune_merge_args args{sizeof args, 0, parts, parts_lse, merged.data(), nullptr};
  return attune_merge(context, &desc, &args, nullptr) == ATTUNE_OK && merged == std::vector<float>(merged.size(), 2.f);
}

bool explains(attune_context* context, const Problem& problem) {
  const attune_forward_desc desc = desc_from(problem);
  size_t length = 0;
  return attune_explain(context, &desc, nullptr, 0, &length) == ATTUNE_OK && length > 0;
}

int threads_of_this_process() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// Threads of its own for every loop, as a host may lend them.
void lent_parallel_for(void*, int64_t count, void (*body)(void*, int64_t), void* body_context) {
  std::thread other([=] {
    for (int64_t i = 1; i < count; i += 2) body(body_context, i);
  });
  for (int64_t i = 0; i < count; i += 2) body(body_context, i);
  other.join();
}

// An OpenMP runtime as they are: its threads remain between regions, and a forked child, which does not have them,
// would wait for them.
class Runtime {
 public:
  static attune_options options() {
    attune_options options = with_threads(0);
    options.gomp_parallel = region;
    options.omp_get_max_threads = [] { return 3; };
    return options;
  }

 private:
  static void region(void (*body)(void*), void* data, unsigned, unsigned) {
    static const pid_t owner = getpid();
    while (getpid() != owner) pause();
    std::thread first(body, data), second(body, data);
    body(data);
    first.join();
    second.join();
  }
};

struct Mode {
  std::string name;
  attune_options options;
  int children;
};

class Forked : public testing::TestWithParam<Mode> {};

// A shape that the parent has computed, one that nobody has, and everything else.
bool child_succeeds(attune_context* context, const std::vector<uint8_t>& expected, int64_t number) {
  const Problem fresh = problem_of(1'000'000 + number);
  const attune_forward_desc desc = desc_from(fresh);
  std::vector<uint8_t> at_once;
  std::thread other([&] { at_once = forward(context); });  // two threads of the child are the first
  const bool old_shape = forward(context) == expected;
  other.join();
  const bool same = old_shape && at_once == expected;
  const bool new_shape = !forward(context, fresh).empty() && attune_prepare(context, &desc) == ATTUNE_OK;
  const bool others = explains(context, problem_of(2'000'000 + number)) && merges(context);
  attune_destroy(context);
  return same && new_shape && others;
}

TEST_P(Forked, ChildrenOfABusyProcessComputeOldAndNewShapes) {
  const Context context(GetParam().options);
  const std::vector<uint8_t> expected = forward(context.handle);
  ASSERT_FALSE(expected.empty());

  // Callers rest while a child works: it has the processors for itself then, and more children fit into the time.
  enum : uint32_t { busy, resting, done };
  std::atomic<uint32_t> state{busy};
  std::atomic<int64_t> number{0}, failures{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&, i] {
      while (state != done) {
        if (i == 0 && forward(context.handle) != expected) ++failures;
        if (i > 0 && forward(context.handle, problem_of(number++)).empty()) ++failures;
        if (i == 2 && !(explains(context.handle, problem_of(number++)) && merges(context.handle))) ++failures;
        state.wait(resting);
      }
    });
  const auto become = [&](uint32_t next) {
    state = next;
    state.notify_all();
  };
  test::Numbers microseconds(7);
  for (int i = 0; i < (test::small_budget() ? 20 : GetParam().children); ++i) {
    become(busy);
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds.in(0, 500)));
    const test::Child child([&] { return child_succeeds(context.handle, expected, i); });
    become(resting);
    if (const int status = child.status(); status != 0) {
      ADD_FAILURE() << "child " << i << ": status " << status;
      break;
    }
  }
  become(done);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(forward(context.handle), expected);
}

std::vector<Mode> modes() {
  attune_options lent = with_threads(0);
  lent.parallel_for = lent_parallel_for;
  return {{"pool", with_threads(3), 200}, {"openmp", Runtime::options(), 100}, {"parallel_for", lent, 100}};
}

std::string name_of(const testing::TestParamInfo<Mode>& mode) { return mode.param.name; }

INSTANTIATE_TEST_SUITE_P(Modes, Forked, testing::ValuesIn(modes()), name_of);

TEST(ForkedChild, StartsWorkersOfItsOwn) {
  const Context context(with_threads(3));
  const std::vector<uint8_t> expected = forward(context.handle);
  EXPECT_EQ(status_of_child([&] {
              const bool alone = threads_of_this_process() == 1;
              return alone && forward(context.handle) == expected && threads_of_this_process() == 3;
            }),
            0);
  EXPECT_EQ(forward(context.handle), expected);
}

TEST(ForkedChild, MayDestroyAContextWithoutUsingIt) {
  const Context context(with_threads(3));
  forward(context.handle);
  EXPECT_EQ(status_of_child([&] {
              attune_destroy(context.handle);
              return threads_of_this_process() == 1;
            }),
            0);
}

TEST(ForkedChild, OfAForkedChildComputes) {
  const Context context(with_threads(2));
  const std::vector<uint8_t> expected = forward(context.handle);
  EXPECT_EQ(status_of_child([&] {
              if (forward(context.handle) != expected) return false;
              return status_of_child([&] { return forward(context.handle) == expected; }) == 0;
            }),
            0);
}

// The name of the kernel need not outlive attune_create.
TEST(ForkedChild, KeepsTheOptions) {
  std::string name = "cpu/reference";
  attune_options options = with_threads(1);
  options.kernel = name.c_str();
  const Context context(options);
  name.assign(name.size(), 'x');
  EXPECT_EQ(status_of_child([&] {
              const attune_forward_desc desc = desc_from(parse_problem(some_problem));
              char text[4096];
              if (attune_explain(context.handle, &desc, text, sizeof text, nullptr) != ATTUNE_OK) return false;
              return std::string(text).find("kernel: cpu/reference") != std::string::npos;
            }),
            0);
}

}  // namespace
}  // namespace attune
