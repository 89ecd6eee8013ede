// On a GPU: mbarriers, named barriers, bounded waits, registers moved between warpgroups, programmatic launch.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <numeric>

#include "core/error.hpp"
#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

using device::test_sync::Operation;
using device::test_sync::Params;
using Numbers = std::vector<int32_t>;

class Sync : public PtxTest {
 protected:
  Numbers run(Operation operation, const Numbers& in, size_t out_count, Waits waits = Waits::bounded) {
    const Buffer<int32_t> in_there(in), out(out_count, 0xee);
    launch(sync_unit(), {1, 1, 1}, Params{operation, in_there.pointer(), out.pointer(), nullptr}, waits);
    finish();
    return out.read();
  }
};

TEST_F(Sync, ParityTellsThePhase) {
  // After 0, 1, ... arrivals of two a phase: whether the phases of parity 0 and 1 are over.
  EXPECT_EQ(run(Operation::phases, {0}, 10), (Numbers{0, 1, 0, 1, 1, 0, 1, 0, 0, 1}));
}

TEST_F(Sync, RingHandsOverInOrder) {
  Numbers in(device::test_sync::ring_items);
  std::iota(in.begin(), in.end(), 500);
  EXPECT_EQ(run(Operation::ring, in, in.size()), in);
  EXPECT_EQ(run(Operation::ring, in, in.size(), Waits::plain), in);
}

TEST_F(Sync, NamedBarriersGiveTurns) {
  Numbers expected;
  for (int i = 0; i < 3 * device::test_sync::turns_each; ++i) expected.push_back(i % 3);
  EXPECT_EQ(run(Operation::turns, {0}, expected.size()), expected);
}

TEST_F(Sync, TakenRegistersHoldValues) {
  constexpr size_t held = device::test_sync::held_values;
  Numbers in(256 * held);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int32_t>(i * 7919 % 10007);
  Numbers expected = in;
  for (size_t thread = 0; thread < 256; ++thread) {
    int32_t* x = &expected[thread * held];
    for (int round = 0; round < 2; ++round)
      for (size_t i = 0; i < held; ++i) x[i] = 3 * x[i] + x[(i + 7) % held];
  }
  EXPECT_EQ(difference(run(Operation::registers, in, in.size(), Waits::plain), expected), "");
}

TEST_F(Sync, SecondKernelStartsEarlyAndWaits) {
  constexpr size_t words = device::test_sync::dependency_words;
  Numbers in(words);
  std::iota(in.begin(), in.end(), 77);
  const Buffer<int32_t> in_there(in), between(words + 1, 0), out(words, 0), started(1, 0);
  launch(sync_unit(), {1, 1, 1},
         Params{Operation::dependency_first, in_there.pointer(), between.pointer(), started.pointer()});
  launch(sync_unit(), {1, 1, 1},
         Params{Operation::dependency_second, between.pointer(), out.pointer(), started.pointer()}, Waits::bounded,
         true);
  finish();
  EXPECT_EQ(difference(out.read(), in), "") << "griddepcontrol.wait returned before the first kernel was done";
  EXPECT_EQ(between.read().back(), 1) << "the second kernel started only after the first had ended";
}

// Planted: tests/sanitizer.toml says that racecheck must report it. By itself it reads old or new values, as it
// happens.
TEST_F(Sync, DISABLED_UnorderedExchange) {
  constexpr int threads = device::test_sync::threads;
  Numbers in(threads);
  std::iota(in.begin(), in.end(), 900);
  const Numbers out = run(Operation::unordered_exchange, in, in.size());
  for (int i = 0; i < threads; ++i)
    EXPECT_TRUE(out[i] == -1 || out[i] == in[(i + 32) % threads]) << "thread " << i << " read " << out[i];
}

class SyncDeathTest : public Sync {
 protected:
  void wait_for_ever() {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // only what comes on stderr is matched, and the driver may use either
    int status = 0;
    try {
      run(Operation::endless_wait, {0}, 1);
    } catch (const Error& error) {
      std::cerr << error.what() << std::endl;
      status = 3;
    }
    std::fflush(nullptr);
    _exit(status);
  }
};

TEST_F(SyncDeathTest, EndlessWaitNamesItsBarrier) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process: CUDA does not survive a fork
  EXPECT_EXIT(
      wait_for_ever(), testing::ExitedWithCode(3),
      "waits for ever .* parity:0: wait: block: \\[0,0,0\\], thread: \\[5,0,0\\] Assertion `never_full` failed");
}

}  // namespace
}  // namespace attune::ptx
