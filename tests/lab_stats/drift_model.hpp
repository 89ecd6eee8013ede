// The machine the statistics are tested on: a card whose clock drifts by 1 % over the run, wanders, treats every turn
// of a contender a little differently, and adds skewed noise with spikes in 3 % of the samples. Fixed: the false-alarm
// rates in docs/measuring.md are this model's.
#pragma once

#include <cmath>
#include <vector>

#include "lab/stats/random.hpp"

namespace attune::lab {

class DriftingMachine {
 public:
  DriftingMachine(uint64_t seed, int samples_of_run) : random_(seed), samples_of_run_(samples_of_run) {
    direction_ = random_.uniform() < 0.5 ? -1 : 1;
  }

  // A contender's turn within a round: one effect for all of its samples.
  void begin_turn() { turn_effect_ = turn_sigma * random_.normal(); }

  // How much longer than ideal the next sample takes, as a factor.
  double next_factor() {
    walk_ += walk_sigma * random_.normal();
    const double slow = direction_ * drift * taken_++ / samples_of_run_;
    double noise = -noise_mean * std::log(1 - random_.uniform());
    if (random_.uniform() < spike_share) noise += spike_size * random_.uniform();
    return std::exp(slow + walk_ + turn_effect_ + noise);
  }

 private:
  static constexpr double drift = 0.01, walk_sigma = 0.0003, turn_sigma = 0.0025;
  static constexpr double noise_mean = 0.003, spike_share = 0.03, spike_size = 0.1;

  stats::Random random_;
  int samples_of_run_;
  int taken_ = 0;
  double direction_ = 1, walk_ = 0, turn_effect_ = 0;
};

}  // namespace attune::lab
