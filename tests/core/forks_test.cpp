// Numbers of processes, and values made once in each that a fork does not leave half made.
#include "core/forks.hpp"

#include <gtest/gtest.h>

#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/child.hpp"

namespace attune {
namespace {

using test::status_of_child;

TEST(Forks, AreCountedInTheChildAlone) {
  const uint32_t before = forks();
  EXPECT_EQ(status_of_child([&] {
              const uint32_t here = forks();
              return here == before + 1 && status_of_child([&] { return forks() == here + 1; }) == 0;
            }),
            0);
  EXPECT_EQ(forks(), before);
}

TEST(MadeOnceThreads, GetTheSameValueMadeOnce) {
  for (int round = 0; round < 50; ++round) {
    static std::atomic<int> made;
    made = 0;
    static MadeOnce<std::string>* once;
    once = new MadeOnce<std::string>;  // its value is leaked, as it is meant to be
    std::latch all(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        all.arrive_and_wait();
        EXPECT_EQ(once->get([] { return ++made, std::string("a value that does not fit into the object"); }).size(),
                  41);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    delete once->made();
    delete once;
  }
}

TEST(MadeOnceThreads, AnExceptionLeavesItUnmade) {
  static MadeOnce<int> once;
  EXPECT_THROW(once.get([]() -> int { throw std::runtime_error("not yet"); }), std::runtime_error);
  EXPECT_EQ(once.made(), nullptr);
  EXPECT_EQ(once.get([] { return 5; }), 5);
  EXPECT_EQ(once.get([] { return 6; }), 5);
}

TEST(MadeOnce, OfAParentIsKeptByItsChildren) {
  static MadeOnce<int> once;
  once.get([] { return 1; });
  EXPECT_EQ(status_of_child([] { return once.get([] { return 2; }) == 1; }), 0);
}

TEST(MadeOnce, AChildMakesWhatAnotherThreadOfItsParentWasMaking) {
  static MadeOnce<int> once;
  std::latch begun(1), forked(1);
  std::thread maker([&] {
    once.get([&] {
      begun.count_down();
      forked.wait();
      return 1;
    });
  });
  begun.wait();
  EXPECT_EQ(status_of_child([] { return once.get([] { return 2; }) == 2; }), 0);
  forked.count_down();
  maker.join();
  EXPECT_EQ(*once.made(), 1);
}

}  // namespace
}  // namespace attune
