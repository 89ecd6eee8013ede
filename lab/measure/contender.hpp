// What the engine measures (Contender) and what it reads time from (Clock).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace attune::lab {

// One timed batch of calls.
struct Sample {
  double seconds = 0;   // per call
  double clock_hz = 0;  // of the processor during the batch; 0: not known
};

// Monotonic, in seconds. An interface so that the whole protocol runs in tests on simulated time.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() = 0;
};
Clock& steady_clock();

// Facts about a contender that a reader of the result needs: kernel, calls per sample, buffer sets.
using Facts = std::map<std::string, std::string>;

class Contender {
 public:
  virtual ~Contender() = default;

  virtual std::string_view name() const = 0;

  // Makes buffers with random data (never zeros: they draw less power and so run faster), records graphs, and settles
  // how many calls make a batch of at least `sample_seconds`. Called once, before anything is timed. All contenders of
  // a run get the same seed, and so the same data; where it lies is theirs to vary.
  virtual void prepare(double sample_seconds, uint64_t seed) = 0;

  // New buffers and graphs, the same number of calls per batch. Called between rounds for contenders so short that the
  // placement of their buffers decides a few per cent.
  virtual void remake(uint64_t seed) = 0;

  virtual Sample sample() = 0;

  virtual Facts facts() const { return {}; }
};

}  // namespace attune::lab
