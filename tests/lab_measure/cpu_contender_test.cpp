// Batches of the CPU contender on simulated time, and one run on the real clock.
#include "lab/measure/cpu_contender.hpp"

#include <gtest/gtest.h>

#include <ctime>
#include <vector>

#include "core/error.hpp"
#include "lab/measure/engine.hpp"
#include "simulated.hpp"

namespace attune::lab {
namespace {

int64_t batch_for(double seconds_per_call) {
  SimulatedMachine machine(1);
  CpuContender contender("call", [&] { machine.pass(seconds_per_call); }, {}, machine);
  contender.prepare(2e-3, 1);
  const double begin = machine.now();
  EXPECT_NEAR(contender.sample().seconds, seconds_per_call, 1e-9 * seconds_per_call + 1e-15);
  const double lasted = machine.now() - begin;
  EXPECT_GE(lasted, 2e-3);
  EXPECT_LE(lasted, 2.3e-3 + seconds_per_call);
  return std::stoll(contender.facts().at("calls_per_sample"));
}

TEST(CpuContender, ABatchLastsAtLeastTheSampleTime) {
  EXPECT_EQ(batch_for(0.1), 1);
  EXPECT_EQ(batch_for(2.5e-3), 1);
  EXPECT_EQ(batch_for(1e-3), 3);
  batch_for(1e-6);
  batch_for(20e-9);
}

TEST(CpuContender, MakesItsDataFromTheSeed) {
  SimulatedMachine machine(1);
  std::vector<uint64_t> seeds;
  CpuContender contender("call", [&] { machine.pass(1e-3); }, [&](uint64_t seed) { seeds.push_back(seed); }, machine);
  contender.prepare(2e-3, 5);
  contender.remake(6);
  EXPECT_EQ(seeds, (std::vector<uint64_t>{5, 6}));
  EXPECT_THROW(CpuContender("nothing", {}), Error);
}

// The processor's time of this thread: real work, but blind to whatever else runs on the machine of the tests.
class ThreadClock final : public Clock {
 public:
  double now() override {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
};

TEST(CpuContender, TwiceTheRealWorkIsSlower) {
  const auto work = [](int steps) {
    return [steps] {
      volatile double value = 1;
      for (int i = 0; i < steps; ++i) value = value * 1.0000001;
    };
  };
  ThreadClock clock;
  Protocol protocol;
  protocol.samples = 2;
  Session session(protocol, clock);
  session.add(std::make_unique<CpuContender>("one", work(20000), std::function<void(uint64_t)>{}, clock));
  session.add(std::make_unique<CpuContender>("two", work(40000), std::function<void(uint64_t)>{}, clock));
  const Result result = session.run();
  EXPECT_EQ(result.analysis.comparisons[0].verdict.outcome, stats::Outcome::slower);
  EXPECT_NEAR(result.analysis.comparisons[0].verdict.estimate, 2, 0.3);
}

}  // namespace
}  // namespace attune::lab
