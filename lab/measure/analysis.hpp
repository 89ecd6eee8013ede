// From samples to statements: pure functions of what was recorded, so that anyone who has the samples can recompute the
// verdicts. The engine records, this judges, and neither prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/measure/contender.hpp"
#include "lab/stats/interval.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {

// Written into every result; results of different protocols are not comparable. docs/measuring.md describes it.
constexpr int protocol_version = 1;

struct Protocol {
  int rounds = 15;               // fixed beforehand: stopping when the answer looks good inflates false alarms
  int samples = 10;              // of each contender in each round; a budget may lower it before the first round
  double sample_seconds = 2e-3;  // a batch lasts at least this long
  double budget_seconds = 0;     // 0: none. Lowers `samples`, never `rounds`

  int warm_up_batches = 3;          // successive batches that must agree ...
  double warm_up_agreement = 0.01;  // ... within this ...
  double warm_up_seconds = 0.2;     // ... or this much time has passed

  double remake_below_seconds = 30e-6;  // contenders shorter than this get new buffers and graphs after every round
  double noise_bar = 0.005;             // the A/A interval may miss 1 by this much before the run is called unfit
  int quiet_cpus = 0;  // each round runs on as many CPUs, the quickest then; 0: wherever the system puts threads
  uint64_t seed = 1;
  stats::VerdictRule rule;
  std::string mode = "cpu";  // cpu, steady, cold, pdl, host
};
void check(const Protocol& protocol);

// twin: the second instance of the baseline, the A/A noise floor. probe: what measures a ceiling, compared with nobody.
enum class Role { baseline, twin, contender, probe };
std::string_view name_of(Role role);
Role role_from(std::string_view name);

struct Recording {
  std::string name;
  Role role = Role::contender;
  bool remade = false;   // got new buffers and graphs after every round
  bool settled = false;  // its warm-up batches agreed in time
  Facts facts;
  std::vector<std::vector<Sample>> rounds;  // every sample, in the order measured
};

// All that was measured. Says nothing yet.
struct Measurement {
  Protocol protocol;
  int samples_per_round = 0;  // what the budget left of protocol.samples
  double elapsed_seconds = 0;
  std::vector<std::vector<int>> cpus;  // the quiet ones of each round; empty: threads ran wherever the system put them
  std::vector<Recording> recordings;   // the baseline first
};

struct Summary {
  std::string name;
  double seconds = 0;        // median over rounds of the median of a round
  stats::Interval interval;  // bootstrap over rounds, for charts
  double relative_std = 0;   // of all samples
  bool noisy = false;        // relative_std above 2 %
  double clock_hz = 0;       // median; 0: not known
};

struct Comparison {
  std::string name;            // against the baseline
  std::vector<double> ratios;  // one per round
  stats::Verdict verdict;
  stats::Interval bootstrap;   // of the median ratio, shown beside the exact interval
  double sign_p = 1;           // exact sign test, for Holm over a table
  bool clocks_differ = false;  // the two sides' median clocks differ by more than 1 %
};

// The A/A comparison and what it says about the run.
struct NoiseFloor {
  Comparison comparison;
  bool fit = false;
  std::string reason;
};

struct Analysis {
  std::vector<Summary> summaries;       // one per recording, the same order
  std::vector<Comparison> comparisons;  // one per contender that is neither baseline nor twin nor probe
  std::optional<NoiseFloor> noise_floor;

  // Without an A/A contender the noise is not known, which is not the same as small.
  bool unfit() const { return noise_floor && !noise_floor->fit; }
};

Analysis analyse(const Measurement& measurement);

// A verdict that claims less than two copies of one contender differed by, or that two are the same where those were
// not, is unclear.
stats::Verdict within_noise(stats::Verdict verdict, const std::optional<NoiseFloor>& floor,
                            const stats::VerdictRule& rule);

// One value per round: the median of its samples, in seconds and in clock cycles (empty where a clock is not known).
std::vector<double> round_seconds(const Recording& recording);
std::vector<double> round_cycles(const Recording& recording);
double quickest_seconds(const Recording& recording);  // of all samples

// time(numerator) / time(denominator) of each round, each divided by the work of a call: what ratios and shares rest
// on. Their median and its exact interval.
struct RoundRatio {
  std::vector<double> by_round;
  double estimate = 0;
  stats::Interval interval;
  double of_quickest = 0;  // the same of the quickest sample of each, whatever round it is of
};
RoundRatio round_ratio(const Recording& numerator, const Recording& denominator, const stats::VerdictRule& rule,
                       double numerator_work = 1, double denominator_work = 1);

struct Result {
  Measurement measurement;
  Analysis analysis;
};

}  // namespace attune::lab
