// How often the procedures cry wolf, and how often they see what is there, on a drifting machine.
#include <gtest/gtest.h>

#include <algorithm>

#include "drift_model.hpp"
#include "lab/stats/interval.hpp"
#include "lab/stats/summary.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {
namespace {

constexpr int rounds = 15, samples = 20, runs = 2000;

// One run of ours: both contenders in every round, order shuffled, there and back. The second takes `slowdown` as long.
std::vector<double> paired_ratios(uint64_t seed, double slowdown) {
  DriftingMachine machine(seed, rounds * samples * 2);
  stats::Random order(seed ^ 0xabcdef);
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> taken[2];
    const int first = static_cast<int>(order.below(2));
    for (const int who : {first, 1 - first, 1 - first, first}) {
      machine.begin_turn();
      for (int i = 0; i < samples / 2; ++i) taken[who].push_back((who == 1 ? slowdown : 1) * machine.next_factor());
    }
    ratios.push_back(stats::median(taken[1]) / stats::median(taken[0]));
  }
  return ratios;
}

double share_of_claims(double slowdown, stats::Outcome claim, uint64_t first_seed) {
  int found = 0;
  for (int run = 0; run < runs; ++run)
    found += stats::judge(paired_ratios(first_seed + run, slowdown), {}, {}).outcome == claim;
  return static_cast<double>(found) / runs;
}

// What must not be done: a bootstrap that takes every sample for an independent witness.
stats::Interval pooled_interval(const std::vector<double>& a, const std::vector<double>& b, uint64_t seed) {
  std::vector<double> drawn_a(a.size()), drawn_b(b.size());
  stats::Random random(seed);
  const auto ratio_of_pools = [&](std::span<const int> drawn) {
    for (size_t i = 0; i < drawn.size(); ++i) {
      drawn_a[i] = a[drawn[i]];
      drawn_b[i] = b[random.below(b.size())];
    }
    return stats::median(drawn_b) / stats::median(drawn_a);
  };
  return stats::bootstrap(static_cast<int>(a.size()), ratio_of_pools, seed, 200);
}

TEST(Drift, EqualKernelsGiveFewFalseAlarms) {
  int misses = 0, claims = 0;
  for (int run = 0; run < runs; ++run) {
    const stats::Verdict verdict = stats::judge(paired_ratios(1000 + run, 1), {}, {});
    misses += !verdict.interval.contains(1);
    claims += verdict.outcome == stats::Outcome::faster || verdict.outcome == stats::Outcome::slower;
  }
  RecordProperty("intervals_that_miss", misses);
  RecordProperty("false_claims", claims);
  EXPECT_LE(misses, runs * 6 / 100);
  EXPECT_GE(misses, runs * 1 / 100) << "far below the interval's 3.5 %: the model has lost its noise";
  EXPECT_LE(claims, misses);
}

TEST(Drift, OnePerCentIsFound) {
  EXPECT_GE(share_of_claims(1.01, stats::Outcome::slower, 50000), 0.95);
  EXPECT_GE(share_of_claims(1 / 1.01, stats::Outcome::faster, 60000), 0.95);
}

TEST(Drift, EqualKernelsAreMostlyCalledSame) { EXPECT_GE(share_of_claims(1, stats::Outcome::same, 70000), 0.9); }

// The contrast: the usual way, all of A and then all of B, with a bootstrap over pooled samples. It takes the drift of
// the machine for a difference of the kernels. Kept as a test so that nobody brings it back as a simplification.
TEST(Drift, MeasuringOneAfterTheOtherIsMostlyWrong) {
  constexpr int contrast_runs = 200;
  int misses = 0;
  for (int run = 0; run < contrast_runs; ++run) {
    DriftingMachine machine(2000 + run, rounds * samples * 2);
    std::vector<double> taken[2];
    for (auto& contender : taken)
      for (int round = 0; round < rounds; ++round) {
        machine.begin_turn();
        for (int i = 0; i < samples; ++i) contender.push_back(machine.next_factor());
      }
    misses += !pooled_interval(taken[0], taken[1], run).contains(1);
  }
  RecordProperty("intervals_that_miss", misses);
  EXPECT_GE(misses, contrast_runs * 70 / 100);
}

// Interleaved, but with samples pooled over rounds as if they were independent: better, and still several times too
// often wrong, since the samples of one turn share that turn's luck.
TEST(Drift, PoolingSamplesOverRoundsIsOftenWrong) {
  constexpr int contrast_runs = 300;
  int misses = 0;
  for (int run = 0; run < contrast_runs; ++run) {
    DriftingMachine machine(9000 + run, rounds * samples * 2);
    std::vector<double> taken[2];
    for (int round = 0; round < rounds; ++round)
      for (const int who : {0, 1, 1, 0}) {
        machine.begin_turn();
        for (int i = 0; i < samples / 2; ++i) taken[who].push_back(machine.next_factor());
      }
    misses += !pooled_interval(taken[0], taken[1], run).contains(1);
  }
  RecordProperty("intervals_that_miss", misses);
  EXPECT_GE(misses, contrast_runs * 10 / 100);
}

}  // namespace
}  // namespace attune::lab
