// The barriers of tests/ptx/sync.cuh on the emulated machine, and what it shares with the original headers as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"
#include "tests/support/paths.hpp"

namespace attune::ptx {
namespace {

using device::test_sync::Operation;
using Numbers = std::vector<int32_t>;

class EmulatedSync : public PtxTest {
 protected:
  Numbers run(Operation operation, const Numbers& in, size_t out_count) {
    const Buffer<int32_t> in_there(in), out(out_count, 0xee);
    launch(sync_unit(), {1, 1, 1}, device::test_sync::Params{operation, in_there.pointer(), out.pointer(), nullptr});
    finish();
    return out.read();
  }
};

TEST_F(EmulatedSync, ParityTellsThePhase) {
  EXPECT_EQ(run(Operation::phases, {0}, 10), (Numbers{0, 1, 0, 1, 1, 0, 1, 0, 0, 1}));
}

TEST_F(EmulatedSync, RingHandsOverInOrder) {
  Numbers in(device::test_sync::ring_items);
  std::iota(in.begin(), in.end(), 500);
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(run(Operation::ring, in, in.size()), in);
}

TEST_F(EmulatedSync, NamedBarriersGiveTurns) {
  Numbers expected;
  for (int i = 0; i < 3 * device::test_sync::turns_each; ++i) expected.push_back(i % 3);
  for (int repeat = 0; repeat < 20; ++repeat) EXPECT_EQ(run(Operation::turns, {0}, expected.size()), expected);
}

TEST_F(EmulatedSync, RegistersMove) {
  constexpr size_t count = size_t{256} * device::test_sync::held_values;
  EXPECT_EQ(run(Operation::registers, Numbers(count, 0), count), Numbers(count, 0));
}

TEST_F(EmulatedSync, AnEndlessWaitNamesItsBarrier) {
  try {
    run(Operation::endless_wait, {0}, 1);
    FAIL() << "it ended";
  } catch (const emulator::Failure& failure) {
    EXPECT_THAT(failure.what(), testing::AllOf(testing::HasSubstr("warp 0 (lane 5) waits for"),
                                               testing::HasSubstr("parity 0 of mbarrier 'never_full'"),
                                               testing::HasSubstr("1 of 1 arrivals")));
  }
}

std::string text_between(const std::string& path, const std::string& begin, const std::string& end) {
  std::stringstream text;
  text << std::ifstream(test::repo() + "/" + path).rdbuf();
  const size_t from = text.str().find(begin), to = text.str().find(end, from);
  EXPECT_NE(to, std::string::npos) << path;
  return text.str().substr(from, to - from);
}

// What has no instruction in it, but lies in a header that has.
TEST(EmulatedHeaders, RepeatTheOriginals) {
  const std::string copies = "tests/sm90_emulated/instructions/";
  for (const auto& [path, begin] : {std::pair{"kernels/common/mbarrier.cuh", "template <int slots>\nstruct Ring {"},
                                    {"kernels/common/tma.cuh", "enum class Evict"}})
    EXPECT_EQ(text_between(path, begin, "\n};"), text_between(copies + path, begin, "\n};"));
}

}  // namespace
}  // namespace attune::ptx
