#include "cpu/peak.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "cpu/isa.hpp"
#include "cpu/threads.hpp"

namespace attune::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The best of several tries: a try during which another process had the core says nothing about the machine. `work`
// runs once on each thread and returns how much it did.
template <typename Work>
double best_rate(int threads, int tries, const Work& work) {
  attune_options options{};
  options.threads = threads;
  Threads pool(options);
  double best = 0;
  for (int attempt = 0; attempt < tries; ++attempt) {
    std::vector<double> amounts(static_cast<size_t>(threads));
    const auto begin = Clock::now();
    pool.parallel_for(threads, [&](int64_t i) { amounts[static_cast<size_t>(i)] = work(i); });
    const double seconds = seconds_since(begin);
    double total = 0;
    for (const double amount : amounts) total += amount;
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace

double measure_peak_flops(int threads) {
  const Level& level = best_level();
  // Rounds of about 5 ms: long enough to hide the start of the threads, short enough to fall between disturbances.
  int64_t rounds = 1 << 14;
  for (double seconds = 0; seconds < 5e-3; rounds *= 2) {
    const auto begin = Clock::now();
    level.multiply_add(rounds);
    seconds = seconds_since(begin);
  }
  return best_rate(threads, 20, [&](int64_t) { return level.multiply_add(rounds / 2); });
}

double measure_read_bandwidth(int threads) {
  const Level& level = best_level();
  constexpr int64_t total_floats = int64_t{256} << 18;  // 256 MiB
  const std::vector<float> data(static_cast<size_t>(total_floats), 1.0f);
  const int64_t share = total_floats / threads;
  std::atomic<float> used{0};  // keeps the sums from being removed
  return best_rate(threads, 8, [&](int64_t i) {
    used.store(level.sum(data.data() + i * share, share), std::memory_order_relaxed);
    return static_cast<double>(share) * sizeof(float);
  });
}

}  // namespace attune::cpu
