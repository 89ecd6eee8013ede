// Runs of tasks that belong together: everything is done once and in order, by however many workers, and a failure
// leaves nobody waiting.
#include "cpu/task_runs.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "tests/support/with_threads.hpp"

namespace attune::cpu {
namespace {

using test::with_threads;

// Of run r: r % 5 parts of 64 bytes, which must be packed when a task begins, and 1 + r % 7 tasks.
class Counted {
 public:
  explicit Counted(int64_t runs) : runs_(static_cast<size_t>(runs)) {}

  static TaskRuns::Size size(int64_t run) {
    return {.bytes = static_cast<size_t>(run % 5) * 64, .parts = static_cast<uint32_t>(run % 5), .tasks = 1 + run % 7};
  }
  TaskRuns::Pack pack() {
    return [this](int64_t run, int64_t part, char* packed) {
      for (int64_t i = 0; i < 64; ++i) packed[part * 64 + i] = static_cast<char>(run);
      ++runs_[static_cast<size_t>(run)].packed;
    };
  }
  TaskRuns::Compute compute() {
    return [this](int64_t run, int64_t task, const char* packed, int64_t next) {
      EXPECT_EQ(runs_[static_cast<size_t>(run)].packed, run % 5);
      EXPECT_EQ(packed == nullptr, run % 5 == 0);
      for (int64_t i = 0; i < run % 5 * 64; ++i) EXPECT_EQ(packed[i], static_cast<char>(run));
      EXPECT_LT(task, 1 + run % 7);
      EXPECT_LT(next, static_cast<int64_t>(runs_.size()));
      EXPECT_NE(next, run);
      ++runs_[static_cast<size_t>(run)].computed;
    };
  }
  void expect_all_done() const {
    for (size_t run = 0; run < runs_.size(); ++run)
      EXPECT_EQ(runs_[run].computed, 1 + static_cast<int64_t>(run) % 7) << "run " << run;
  }

 private:
  struct Run {
    std::atomic<int64_t> packed{0}, computed{0};
  };
  std::vector<Run> runs_;
};

TEST(TaskRuns, AnyNumberOfThreadsDoesEverythingOnceAndKeysFirst) {
  for (const int64_t count : {0, 2, 3, 40}) {
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << count << " runs, " << threads << " threads");
      Threads pool(with_threads(threads));
      Counted counted(count);
      TaskRuns runs(pool, count, Counted::size, counted.pack());
      pool.parallel_for(threads, [&](int64_t worker) { runs.work(worker, threads, counted.compute()); });
      counted.expect_all_done();
    }
  }
}

// A host may run all bodies on one thread, one after the other.
TEST(TaskRuns, OneWorkerDoesTheWorkOfAll) {
  Threads pool(with_threads(1));
  Counted counted(12);
  TaskRuns runs(pool, 12, Counted::size, counted.pack());
  runs.work(3, 4, counted.compute());
  counted.expect_all_done();
  for (const int64_t worker : {0, 1, 2}) runs.work(worker, 4, counted.compute());
  counted.expect_all_done();
}

TEST(TaskRuns, AFailureReachesTheCallerAndNobodyWaits) {
  for (int64_t failing = 0; failing < 6; ++failing) {
    Threads pool(with_threads(4));
    Counted counted(30);
    const auto fail_at = [&](int64_t run) {
      if (run == 4 + 5 * failing) throw std::runtime_error("no memory");
    };
    TaskRuns::Pack pack = counted.pack();
    TaskRuns::Compute compute = counted.compute();
    if (failing % 2 == 0)
      pack = [&, pack](int64_t run, int64_t part, char* packed) {
        fail_at(run);
        pack(run, part, packed);
      };
    else
      compute = [&](int64_t run, int64_t, const char*, int64_t) { fail_at(run); };
    TaskRuns runs(pool, 30, Counted::size, pack);
    EXPECT_THROW(pool.parallel_for(4, [&](int64_t worker) { runs.work(worker, 4, compute); }), std::runtime_error)
        << failing;
  }
}

}  // namespace
}  // namespace attune::cpu
