// Results of splits: one memory for all of a task, complete for the one that ends the last, and used again.
#include "cpu/partials.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <vector>

#include "tests/support/with_threads.hpp"

namespace attune::cpu {
namespace {

TEST(Partials, WhoeverEndsTheLastSplitOnAnyThreadSeesAll) {
  constexpr int64_t tasks = 50, splits = 8;
  Threads threads(test::with_threads(4));
  std::vector<Partials> partials(tasks);
  std::vector<std::atomic<int>> joined(tasks);
  threads.parallel_for(tasks * splits, [&](int64_t index) {
    const int64_t task = index / splits, split = index % splits;
    Partials& of_task = partials[static_cast<size_t>(task)];
    double* const parts = of_task.memory(threads, splits);
    parts[split] = static_cast<double>(index);
    if (!of_task.end_split(splits)) return;
    for (int64_t i = 0; i < splits; ++i) EXPECT_EQ(parts[i], static_cast<double>(task * splits + i));
    of_task.give_back();
    ++joined[static_cast<size_t>(task)];
  });
  for (const auto& times : joined) EXPECT_EQ(times, 1);
}

TEST(Partials, MemoryIsUsedAgain) {
  Threads threads(test::with_threads(1));
  std::set<const double*> seen;
  for (int i = 0; i < 10; ++i) {
    Partials partials;
    seen.insert(partials.memory(threads, 1000));
    if (i % 2 == 0) partials.give_back();  // otherwise its end does it
  }
  EXPECT_EQ(seen.size(), 1u);
}

}  // namespace
}  // namespace attune::cpu
