#include "lab/measure/cpu_contender.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.hpp"

namespace attune::lab {
namespace {

class SteadyClock final : public Clock {
 public:
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

constexpr int64_t largest_batch = int64_t{1} << 30;

}  // namespace

Clock& steady_clock() {
  static SteadyClock clock;
  return clock;
}

CpuContender::CpuContender(std::string name, std::function<void()> call, std::function<void(uint64_t)> make,
                           Clock& clock)
    : name_(std::move(name)), call_(std::move(call)), make_(std::move(make)), clock_(clock) {
  if (!call_) fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' has nothing to call", name_);
}

void CpuContender::prepare(double sample_seconds, uint64_t seed) {
  remake(seed);
  call_();  // page faults, plans and thread start belong to no batch
  batch_ = 1;
  double elapsed = time_batch();
  while (elapsed < sample_seconds && batch_ < largest_batch) {
    // At most fourfold at a time: the first short batches predict badly.
    const double wanted = std::ceil(1.1 * static_cast<double>(batch_) * sample_seconds / std::max(elapsed, 1e-9));
    batch_ = std::min({std::max(static_cast<int64_t>(std::min(wanted, 1e9)), batch_ + 1), 4 * batch_, largest_batch});
    elapsed = time_batch();
  }
}

void CpuContender::remake(uint64_t seed) {
  if (make_) make_(seed);
}

Sample CpuContender::sample() { return {time_batch() / static_cast<double>(batch_), 0}; }

Facts CpuContender::facts() const { return {{"calls_per_sample", std::to_string(batch_)}, {"timer", "wall clock"}}; }

double CpuContender::time_batch() {
  const double begin = clock_.now();
  for (int64_t i = 0; i < batch_; ++i) call_();
  return clock_.now() - begin;
}

}  // namespace attune::lab
