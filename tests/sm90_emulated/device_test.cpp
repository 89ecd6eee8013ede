// What device code takes from the language, on the emulated machine; and how threads and CTAs share it.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "tests/sm90_emulated/harness.hpp"
// The harness must come first.
#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"

namespace attune::emulator {
namespace {

constexpr unsigned threads = 128;

// Runs `body` in every thread of `ctas` CTAs, in several orders.
void in_any_order(unsigned ctas, const std::function<void()>& body, unsigned cluster = 1) {
  for (uint64_t seed = 0; seed < 5; ++seed) launch({{ctas, 1, 1}, {cluster, 1, 1}, threads, 4096, 128}, seed, body);
}

TEST(EmulatedDevice, ShufflesAndVotes) {
  in_any_order(1, [] {
    const int lane = threadIdx.x % 32;
    EXPECT_EQ(__shfl_sync(~0u, lane * 3, 7), 21);
    EXPECT_EQ(__shfl_xor_sync(~0u, lane, 5), lane ^ 5);
    EXPECT_EQ(__shfl_up_sync(~0u, lane, 3), lane < 3 ? lane : lane - 3);
    EXPECT_EQ(__shfl_down_sync(~0u, double(lane), 3), lane > 28 ? lane : lane + 3);
    EXPECT_EQ(__ballot_sync(~0u, lane % 2), 0xaaaaaaaau);
    EXPECT_TRUE(__any_sync(~0u, lane == 9));
    EXPECT_FALSE(__all_sync(~0u, lane != 9));
    if (lane < 8) {
      EXPECT_EQ(__ballot_sync(0xffu, lane == 2), 4u);
    } else {
      EXPECT_EQ(__shfl_sync(~0xffu, lane, 30), 30);
    }
    __syncwarp();
    EXPECT_EQ(__popc(0xf0f0u) + __ffs(8) + __clz(1), 8 + 4 + 31);
  });
}

TEST(EmulatedDevice, BlockVotes) {
  in_any_order(2, [] {
    for (unsigned i = 0; i < 10; ++i) EXPECT_EQ(__syncthreads_or(threadIdx.x == 100 && i % 3 == 0), i % 3 == 0) << i;
  });
}

// A warp that has ended is not waited for.
TEST(EmulatedDevice, BlockBarrierOfThoseThatAreLeft) {
  int passed = 0;
  in_any_order(1, [&] {
    if (threadIdx.x < 32) return;
    __syncthreads();
    ++passed;
  });
  EXPECT_EQ(passed, 5 * 96);
}

TEST(EmulatedDevice, AtomicsCount) {
  constexpr unsigned ctas = 3;
  std::multiset<unsigned> taken;
  unsigned next = 0, largest = 0;
  float sum = 0;
  in_any_order(ctas, [&] {
    const unsigned mine = atomicAdd(&next, 1);
    taken.insert(mine);
    atomicMax(&largest, mine);
    atomicAdd(&sum, 0.5f);
  });
  EXPECT_EQ(std::set<unsigned>(taken.begin(), taken.end()).size(), taken.size());
  EXPECT_EQ(next, 5 * ctas * threads);
  EXPECT_EQ(largest, next - 1);
  EXPECT_EQ(sum, next / 2.f);
}

// What is polled in a loop is there in the end: neither form may keep others from running.
TEST(EmulatedDevice, PollingWaits) {
  in_any_order(1, [] {
    auto& barrier = *static_cast<device::Mbarrier*>(dynamic_shared_memory());
    if (threadIdx.x == 0) barrier.init(1);
    __syncthreads();
    if (threadIdx.x == 70) barrier.arrive();
    if (threadIdx.x < 32)
      while (!barrier.test(0)) {
      }
    while (!barrier.try_wait(0)) {
    }
  });
}

TEST(EmulatedDevice, PollingForEverIsADeadlock) {
  EXPECT_THROW(in_any_order(1,
                            [] {
                              auto& barrier = *static_cast<device::Mbarrier*>(dynamic_shared_memory());
                              if (threadIdx.x == 0) barrier.init(1);
                              __syncthreads();
                              while (!barrier.try_wait(0)) {
                              }
                            }),
               Failure);
}

TEST(EmulatedDevice, SharedMemoryIsTheCtasOwn) {
  in_any_order(
      8,
      [] {
        auto* const words = static_cast<unsigned*>(dynamic_shared_memory());
        EXPECT_EQ(shared_address(words) % 1024, 0u);
        EXPECT_EQ(words[threadIdx.x], 0xffffffffu);
        device::cluster_sync();
        words[threadIdx.x] = device::cluster_rank() * 1000 + threadIdx.x;
        device::cluster_sync();
        const unsigned peer = (device::cluster_rank() + 1) % 4;
        const float there = device::load_remote(device::remote_address(&words[threadIdx.x], peer));
        EXPECT_EQ(__float_as_uint(there), peer * 1000 + threadIdx.x);
        EXPECT_EQ(blockIdx.x % 4, device::cluster_rank());
        device::cluster_sync();
      },
      4);
}

TEST(EmulatedDevice, AnotherCtaMustBeThere) {
  const auto reach = [](unsigned who) {
    if (device::cluster_rank() != who) return;
    device::load_remote(device::remote_address(dynamic_shared_memory(), 1 - who));
  };
  EXPECT_THROW(in_any_order(2, [&] { reach(0), reach(1); }, 2), Failure);
}

TEST(EmulatedDevice, NothingOutsideSharedMemoryHasAnAddress) {
  EXPECT_THROW(in_any_order(1,
                            [] {
                              device::Mbarrier barrier;
                              barrier.init(1);
                            }),
               Failure);
}

}  // namespace
}  // namespace attune::emulator
