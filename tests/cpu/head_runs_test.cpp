// Heads whose tasks share packed keys: everything is done once and in order, by however many workers, and a failure
// leaves nobody waiting.
#include "cpu/head_runs.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

namespace attune::cpu {
namespace {

attune_options with_threads(int threads) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = threads;
  return options;
}

// Of head h: h % 5 parts of 64 bytes, which must be packed when a task begins, and 1 + h % 7 tasks.
struct Counted {
  explicit Counted(int64_t heads) : heads_(static_cast<size_t>(heads)) {}

  HeadRuns::Work work() {
    return {
        .size =
            [](int64_t head) {
              return HeadRuns::Size{.bytes = static_cast<size_t>(head % 5) * 64,
                                    .parts = static_cast<uint32_t>(head % 5),
                                    .tasks = 1 + head % 7};
            },
        .pack =
            [this](int64_t head, int64_t part, char* packed) {
              for (int64_t i = 0; i < 64; ++i) packed[part * 64 + i] = static_cast<char>(head);
              ++heads_[static_cast<size_t>(head)].packed;
            },
        .compute =
            [this](int64_t head, int64_t task, const char* packed, int64_t next) {
              EXPECT_EQ(heads_[static_cast<size_t>(head)].packed, head % 5);
              for (int64_t i = 0; i < head % 5 * 64; ++i) EXPECT_EQ(packed[i], static_cast<char>(head));
              EXPECT_LT(task, 1 + head % 7);
              EXPECT_LT(next, static_cast<int64_t>(heads_.size()));
              EXPECT_NE(next, head);
              ++heads_[static_cast<size_t>(head)].computed;
            },
    };
  }
  void expect_all_done() const {
    for (size_t head = 0; head < heads_.size(); ++head)
      EXPECT_EQ(heads_[head].computed, 1 + static_cast<int64_t>(head) % 7) << "head " << head;
  }

 private:
  struct Head {
    std::atomic<int64_t> packed{0}, computed{0};
  };
  std::vector<Head> heads_;
};

TEST(HeadRuns, EverythingIsDoneOnceAndKeysComeFirst) {
  for (const int64_t heads : {0, 2, 3, 40}) {
    for (const int threads : {1, 2, 7}) {
      SCOPED_TRACE(testing::Message() << heads << " heads, " << threads << " threads");
      Threads pool(with_threads(threads));
      Counted counted(heads);
      const HeadRuns::Work work = counted.work();
      HeadRuns runs(pool, heads, work);
      pool.parallel_for(threads, [&](int64_t worker) { runs.work(worker, threads); });
      counted.expect_all_done();
    }
  }
}

// A host may run all bodies on one thread, one after the other.
TEST(HeadRuns, OneWorkerDoesTheWorkOfAll) {
  Threads pool(with_threads(1));
  Counted counted(12);
  const HeadRuns::Work work = counted.work();
  HeadRuns runs(pool, 12, work);
  runs.work(3, 4);
  counted.expect_all_done();
  for (const int64_t worker : {0, 1, 2}) runs.work(worker, 4);
  counted.expect_all_done();
}

TEST(HeadRuns, AFailureReachesTheCallerAndNobodyWaits) {
  for (int64_t failing = 0; failing < 6; ++failing) {
    Threads pool(with_threads(4));
    Counted counted(30);
    HeadRuns::Work work = counted.work();
    const bool in_pack = failing % 2 == 0;
    const auto fail_at = [&](int64_t head) {
      if (head == 4 + 5 * failing) throw std::runtime_error("no memory");
    };
    if (in_pack)
      work.pack = [&, pack = work.pack](int64_t head, int64_t part, char* packed) {
        fail_at(head);
        pack(head, part, packed);
      };
    else
      work.compute = [&](int64_t head, int64_t, const char*, int64_t) { fail_at(head); };
    HeadRuns runs(pool, 30, work);
    EXPECT_THROW(pool.parallel_for(4, [&](int64_t worker) { runs.work(worker, 4); }), std::runtime_error) << failing;
  }
}

}  // namespace
}  // namespace attune::cpu
