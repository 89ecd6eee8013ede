// A simulated machine for the engine: time passes only when a contender runs, and how fast depends on drift, turns and
// where a contender's buffers lie.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "lab/measure/contender.hpp"
#include "tests/lab_stats/drift_model.hpp"

namespace attune::lab {

class SimulatedMachine final : public Clock {
 public:
  explicit SimulatedMachine(uint64_t seed, int samples_of_run = 15 * 12 * 3)
      : random(seed + 17), drift_(seed, samples_of_run) {}

  double now() override { return now_; }
  void pass(double seconds) { now_ += seconds; }

  double next_factor(const void* who) {
    if (who != running_) drift_.begin_turn();
    running_ = who;
    return drift_.next_factor();
  }

  stats::Random random;
  std::vector<std::string> visits;  // names, in the order sampled

 private:
  DriftingMachine drift_;
  const void* running_ = nullptr;
  double now_ = 0;
};

struct Simulated {
  double seconds = 1e-4;       // per call on an ideal machine
  double placement_sigma = 0;  // relative effect of where buffers lie, drawn anew at each remake
  double clock_hz = 0;         // reported; 0: not known
  bool noisy = true;
};

class SimulatedContender final : public Contender {
 public:
  SimulatedContender(std::string name, SimulatedMachine& machine, Simulated model)
      : name_(std::move(name)), machine_(machine), model_(model) {}

  std::string_view name() const override { return name_; }

  void prepare(double sample_seconds, uint64_t seed) override {
    sample_seconds_ = sample_seconds;
    remake(seed);
    remakes = 0;
  }

  void remake(uint64_t) override {
    ++remakes;
    placement_ = 1 + model_.placement_sigma * machine_.random.normal();
  }

  Sample sample() override {
    machine_.visits.push_back(name_);
    const double factor = model_.noisy ? machine_.next_factor(this) : 1;
    const double seconds = model_.seconds * placement_ * factor;
    machine_.pass(std::max(seconds, sample_seconds_));
    return {seconds, model_.clock_hz};
  }

  Facts facts() const override { return {{"simulated", "yes"}}; }

  int remakes = 0;

 private:
  std::string name_;
  SimulatedMachine& machine_;
  Simulated model_;
  double sample_seconds_ = 0, placement_ = 1;
};

}  // namespace attune::lab
