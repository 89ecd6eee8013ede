// Which CPUs a round runs on: the choice by made-up times, the engine on a made-up process, and this process itself.
#include "lab/measure/quiet_cpus.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "lab/measure/cpu_contender.hpp"
#include "lab/measure/engine.hpp"
#include "simulated.hpp"

namespace attune::lab {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<Cpu> four_cores{{0, 0}, {1, 1}, {2, 2}, {5, 5}};

TEST(QuietCpus, AreTheQuickest) {
  EXPECT_THAT(quickest_cpus(four_cores, {3, 1, 4, 2}, 1), ElementsAre(1));
  EXPECT_THAT(quickest_cpus(four_cores, {3, 1, 4, 2}, 2), ElementsAre(1, 5));
  EXPECT_THAT(quickest_cpus(four_cores, {3, 1, 4, 2}, 3), ElementsAre(0, 1, 5));
  EXPECT_THAT(quickest_cpus(four_cores, {3, 1, 4, 2}, 9), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(quickest_cpus(four_cores, {1, 1, 1, 1}, 2), ElementsAre(0, 1)) << "of equals the first";
}

TEST(QuietCpus, AreOfDifferentCoresWhileThereAreAny) {
  const std::vector<Cpu> two_cores{{0, 0}, {1, 1}, {2, 0}, {3, 1}};
  EXPECT_THAT(quickest_cpus(two_cores, {1, 3, 2, 4}, 1), ElementsAre(0));
  EXPECT_THAT(quickest_cpus(two_cores, {1, 3, 2, 4}, 2), ElementsAre(0, 1)) << "2 is quicker than 1, but beside 0";
  EXPECT_THAT(quickest_cpus(two_cores, {1, 3, 2, 4}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(quickest_cpus(two_cores, {4, 2, 3, 1}, 2), ElementsAre(2, 3));
}

// A process on four CPUs, of which another one is the quickest at each probe.
struct MadeUpProcess {
  int probes = 0, made = 0;
  std::vector<int> confined;  // at the moment; empty: anywhere

  ProcessCpusSource source() {
    return [this] {
      ++made;
      return std::make_unique<Cpus>(*this);
    };
  }

 private:
  class Cpus final : public ProcessCpus {
   public:
    explicit Cpus(MadeUpProcess& process) : process_(process) {}
    ~Cpus() override { process_.confined.clear(); }
    const std::vector<Cpu>& usable() const override { return four_cores; }
    std::vector<double> probe() override {
      std::vector<double> seconds(4, 2.0);
      seconds[static_cast<size_t>(process_.probes++ % 4)] = 1.0;
      return seconds;
    }
    void confine(const std::vector<int>& numbers) override { process_.confined = numbers; }

   private:
    MadeUpProcess& process_;
  };
};

// Notes where it runs.
class Placed final : public Contender {
 public:
  Placed(std::string name, SimulatedMachine& machine, const MadeUpProcess& process, std::vector<std::vector<int>>& seen)
      : name_(std::move(name)), machine_(machine), process_(process), seen_(seen) {}
  std::string_view name() const override { return name_; }
  void prepare(double, uint64_t) override {}
  void remake(uint64_t) override {}
  Sample sample() override {
    machine_.pass(2e-3);
    if (seen_.empty() || seen_.back() != process_.confined) seen_.push_back(process_.confined);
    return {1e-3, 0};
  }

 private:
  std::string name_;
  SimulatedMachine& machine_;
  const MadeUpProcess& process_;
  std::vector<std::vector<int>>& seen_;
};

Protocol with_quiet_cpus(int count) {
  Protocol protocol;
  protocol.rounds = 6;
  protocol.samples = 2;
  protocol.quiet_cpus = count;
  return protocol;
}

// A session in that process, and the CPUs its contenders saw.
struct MadeUpRun {
  explicit MadeUpRun(int count) : session(with_quiet_cpus(count), machine, process.source()) {
    session.add(placed("a"));
  }
  std::unique_ptr<Placed> placed(const char* name) { return std::make_unique<Placed>(name, machine, process, seen); }

  SimulatedMachine machine{1};
  MadeUpProcess process;
  std::vector<std::vector<int>> seen;
  Session session;
};

TEST(QuietCpus, AreChosenBeforeTheWarmUpAndBeforeEveryRound) {
  MadeUpRun run(1);
  run.session.add(run.placed("b"));
  run.session.add_probe(run.placed("ceiling"), "a");
  const Result result = run.session.run();
  EXPECT_EQ(run.process.made, 1);
  EXPECT_EQ(run.process.probes, 1 + 6);
  EXPECT_THAT(run.seen, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(5), ElementsAre(0),
                                    ElementsAre(1), ElementsAre(2)))
      << "all contenders of a round run on the same";
  EXPECT_EQ(result.measurement.cpus, std::vector<std::vector<int>>(run.seen.begin() + 1, run.seen.end()));
  EXPECT_THAT(run.process.confined, IsEmpty());
}

TEST(QuietCpus, AreGivenUpWhenARunFails) {
  MadeUpRun run(2);
  const auto end_in_round_3 = [&](const Progress& progress) {
    if (progress.round == 3) fail(ATTUNE_INVALID_ARGUMENT, "ended");
  };
  EXPECT_THROW(run.session.run(end_in_round_3), Error);
  EXPECT_EQ(run.process.probes, 1 + 4);
  EXPECT_THAT(run.seen.back(), testing::SizeIs(2));
  EXPECT_THAT(run.process.confined, IsEmpty());
}

TEST(QuietCpus, AreChosenOnlyWhereAskedForAndWhereThereIsAChoice) {
  for (const int count : {0, 4, 5}) {
    MadeUpRun run(count);
    EXPECT_THAT(run.session.run().measurement.cpus, IsEmpty());
    EXPECT_EQ(run.process.made, count > 0 ? 1 : 0);
    EXPECT_EQ(run.process.probes, 0);
    EXPECT_THAT(run.seen, Each(IsEmpty()));
  }
  EXPECT_THROW(Session(with_quiet_cpus(-1)), Error);
}

TEST(QuietCpus, AreLookedAtWithinTheBudget) {
  struct Slow final : ProcessCpus {
    explicit Slow(SimulatedMachine& m) : machine(m) {}
    const std::vector<Cpu>& usable() const override { return four_cores; }
    std::vector<double> probe() override {
      machine.pass(20e-3);
      return {1, 2, 3, 4};
    }
    void confine(const std::vector<int>&) override {}
    SimulatedMachine& machine;
  };
  SimulatedMachine machine(1);
  Protocol protocol = with_quiet_cpus(1);
  protocol.samples = 100;
  protocol.budget_seconds = 0.5;
  Session session(protocol, machine, [&] { return std::make_unique<Slow>(machine); });
  session.add(std::make_unique<SimulatedContender>("a", machine, Simulated{.noisy = false}));
  const Measurement measurement = session.run().measurement;
  EXPECT_LT(measurement.samples_per_round, 100);
  EXPECT_GT(measurement.samples_per_round, 10);
  EXPECT_LE(measurement.elapsed_seconds, 0.5);
}

std::set<int> cpus_of(pid_t thread) {
  cpu_set_t set;
  std::set<int> cpus;
  if (sched_getaffinity(thread, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.insert(cpu);
  return cpus;
}

// A thread that sleeps until it is ended, with CPUs of its own if some are given.
class Sleeper {
 public:
  explicit Sleeper(int cpu = -1)
      : thread_([this, cpu] {
          cpu_set_t set;
          CPU_ZERO(&set);
          if (cpu >= 0) CPU_SET(static_cast<size_t>(cpu), &set);
          if (cpu >= 0) sched_setaffinity(0, sizeof set, &set);
          id_ = gettid();
          id_.notify_one();
          ended_.wait(false);
        }) {
    id_.wait(0);
  }
  ~Sleeper() {
    ended_ = true;
    ended_.notify_one();
    thread_.join();
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t id() const { return id_; }

 private:
  std::atomic<pid_t> id_ = 0;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

TEST(QuietCpus, AreThoseOfAllThreadsDuringARunAndOfNoneAfterwards) {
  const std::set<int> before = cpus_of(0);
  EXPECT_EQ(usable_cpu_count(), static_cast<int>(before.size()));
  if (before.size() < 2) GTEST_SKIP() << "there is one CPU";
  const int last = *before.rbegin();
  const Sleeper old_one, pinned(last);
  auto vanishing = std::make_unique<Sleeper>();
  std::unique_ptr<Sleeper> started;
  std::set<std::set<int>> seen;
  bool alike = true;
  Protocol protocol = with_quiet_cpus(1);
  protocol.sample_seconds = 1e-4;
  Session session(protocol);
  session.add(std::make_unique<CpuContender>("a", [&] {
    if (cpus_of(0) == before) return;  // not yet warming up
    if (!started) started = std::make_unique<Sleeper>();
    vanishing.reset();
    seen.insert(cpus_of(0));
    alike &= cpus_of(0) == cpus_of(old_one.id()) && cpus_of(0) == cpus_of(pinned.id());
  }));
  const Result result = session.run();
  EXPECT_TRUE(alike);
  ASSERT_FALSE(seen.empty());
  EXPECT_THAT(seen, Each(testing::SizeIs(1)));
  ASSERT_EQ(result.measurement.cpus.size(), 6u);
  for (const std::vector<int>& round : result.measurement.cpus) {
    ASSERT_EQ(round.size(), 1u);
    EXPECT_TRUE(before.contains(round[0])) << round[0];
    EXPECT_TRUE(seen.contains({round[0]})) << round[0];
  }
  EXPECT_EQ(cpus_of(0), before);
  EXPECT_EQ(cpus_of(old_one.id()), before);
  EXPECT_EQ(cpus_of(pinned.id()), std::set<int>{last});
  EXPECT_EQ(cpus_of(started->id()), before) << "born on the CPUs of a round";
}

TEST(QuietCpus, AreOfNoThreadAfterARunThatFailed) {
  const std::set<int> before = cpus_of(0);
  if (before.size() < 2) GTEST_SKIP() << "there is one CPU";
  const Sleeper other;
  std::set<int> meanwhile;
  Protocol protocol = with_quiet_cpus(1);
  protocol.sample_seconds = 1e-4;
  Session session(protocol);
  session.add(std::make_unique<CpuContender>("a", [] {}));
  const auto end_in_round_2 = [&](const Progress& progress) {
    if (progress.round < 2) return;
    meanwhile = cpus_of(other.id());
    fail(ATTUNE_INVALID_ARGUMENT, "ended");
  };
  EXPECT_THROW(session.run(end_in_round_2), Error);
  EXPECT_EQ(meanwhile.size(), 1u);
  EXPECT_EQ(cpus_of(other.id()), before);
  EXPECT_EQ(cpus_of(0), before);
}

TEST(QuietCpus, OfSeveralTheCallerHasTheFirstToItself) {
  const std::set<int> before = cpus_of(0);
  if (before.size() < 2) GTEST_SKIP() << "there is one CPU";
  const int first = *before.begin(), last = *before.rbegin();
  const Sleeper other;
  {
    const auto process = this_process();
    process->confine({first, last});
    EXPECT_EQ(cpus_of(0), std::set<int>{first});
    EXPECT_EQ(cpus_of(other.id()), std::set<int>{last});
  }
  EXPECT_EQ(cpus_of(0), before);
  EXPECT_EQ(cpus_of(other.id()), before);
}

TEST(QuietCpus, OfThisProcessAreLookedAtOneAfterTheOther) {
  const auto process = this_process();
  ASSERT_FALSE(process->usable().empty());
  const std::vector<double> seconds = process->probe();
  ASSERT_EQ(seconds.size(), process->usable().size());
  for (const double each : seconds) EXPECT_GT(each, 1e-6);
}

}  // namespace
}  // namespace attune::lab
