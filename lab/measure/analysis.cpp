#include "lab/measure/analysis.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "lab/stats/summary.hpp"
#include "lab/stats/table.hpp"

namespace attune::lab {
namespace {

constexpr std::array role_names{"baseline", "twin", "contender", "probe"};
constexpr double clock_difference = 0.01;

bool clock_known(const Recording& recording) {
  for (const auto& round : recording.rounds)
    for (const Sample& sample : round)
      if (!(sample.clock_hz > 0)) return false;
  return true;
}

template <typename Value>
std::vector<double> round_medians(const Recording& recording, Value&& value) {
  std::vector<double> medians, values;
  for (const auto& round : recording.rounds) {
    values.clear();
    for (const Sample& sample : round) values.push_back(value(sample));
    medians.push_back(stats::median(values));
  }
  return medians;
}

std::vector<double> divide(std::vector<double> numerators, const std::vector<double>& denominators) {
  for (size_t i = 0; i < numerators.size(); ++i) numerators[i] /= denominators[i];
  return numerators;
}

void check(const Measurement& measurement) {
  check(measurement.protocol);
  const auto& recordings = measurement.recordings;
  if (recordings.empty()) fail(ATTUNE_INVALID_ARGUMENT, "a measurement without contenders");
  if (const auto& cpus = measurement.cpus; !cpus.empty()) {
    if (static_cast<int>(cpus.size()) != measurement.protocol.rounds)
      fail(ATTUNE_INVALID_ARGUMENT, "a measurement with CPUs for {} rounds of the protocol's {}", cpus.size(),
           measurement.protocol.rounds);
    for (const std::vector<int>& round : cpus)
      if (static_cast<int>(round.size()) != measurement.protocol.quiet_cpus)
        fail(ATTUNE_INVALID_ARGUMENT, "a measurement with a round on {} CPUs; the protocol has {}", round.size(),
             measurement.protocol.quiet_cpus);
  }
  for (const Recording& recording : recordings) {
    if ((recording.role == Role::baseline) != (&recording == &recordings.front()))
      fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' has role {}; the first one and no other is the baseline",
           recording.name, name_of(recording.role));
    if (static_cast<int>(recording.rounds.size()) != measurement.protocol.rounds)
      fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' has {} rounds of the protocol's {}", recording.name,
           recording.rounds.size(), measurement.protocol.rounds);
    for (const auto& round : recording.rounds) {
      if (static_cast<int>(round.size()) != measurement.samples_per_round)
        fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' has a round of {} samples; every round has {}", recording.name,
             round.size(), measurement.samples_per_round);
      for (const Sample& sample : round)
        if (!std::isfinite(sample.seconds) || sample.seconds <= 0)
          fail(ATTUNE_INVALID_ARGUMENT, "contender '{}' has a sample of {} s", recording.name, sample.seconds);
    }
  }
  if (std::count_if(recordings.begin(), recordings.end(), [](const auto& r) { return r.role == Role::twin; }) > 1)
    fail(ATTUNE_INVALID_ARGUMENT, "a measurement has more than one twin of its baseline");
}

Summary summarise(const Recording& recording, uint64_t seed) {
  Summary summary;
  summary.name = recording.name;
  const std::vector<double> medians = round_seconds(recording);
  summary.seconds = stats::median(medians);
  summary.interval = stats::bootstrap_median(medians, seed);
  std::vector<double> all, clocks;
  for (const auto& round : recording.rounds)
    for (const Sample& sample : round) {
      all.push_back(sample.seconds);
      clocks.push_back(sample.clock_hz);
    }
  summary.relative_std = stats::relative_std(all);
  summary.noisy = summary.relative_std > stats::noisy_relative_std;
  if (clock_known(recording)) summary.clock_hz = stats::median(clocks);
  return summary;
}

Comparison compare(const Recording& contender, const Recording& baseline, const Protocol& protocol, uint64_t seed) {
  Comparison comparison;
  comparison.name = contender.name;
  comparison.ratios = divide(round_seconds(contender), round_seconds(baseline));
  std::vector<double> cycle_ratios;
  if (clock_known(contender) && clock_known(baseline)) {
    const auto clock = [](const Sample& sample) { return sample.clock_hz; };
    cycle_ratios = divide(round_cycles(contender), round_cycles(baseline));
    const double clocks =
        stats::median(round_medians(contender, clock)) / stats::median(round_medians(baseline, clock));
    comparison.clocks_differ = std::abs(clocks - 1) > clock_difference;
  }
  comparison.verdict = stats::judge(comparison.ratios, cycle_ratios, protocol.rule);
  comparison.bootstrap = stats::bootstrap_median(comparison.ratios, seed);
  comparison.sign_p = stats::sign_test(comparison.ratios);
  return comparison;
}

NoiseFloor noise_floor(Comparison comparison, const Protocol& protocol) {
  NoiseFloor floor;
  const stats::Interval& interval = comparison.verdict.interval;
  const double miss = std::max({interval.lower - 1, 1 - interval.upper, 0.0});
  floor.fit = miss <= protocol.noise_bar;
  floor.reason = floor.fit ? fmt::format("the A/A interval [{:.4f}, {:.4f}] holds 1 within {:g} %", interval.lower,
                                         interval.upper, 100 * protocol.noise_bar)
                           : fmt::format(
                                 "two copies of the baseline differ: their interval [{:.4f}, {:.4f}] misses 1 "
                                 "by more than {:g} %",
                                 interval.lower, interval.upper, 100 * protocol.noise_bar);
  floor.comparison = std::move(comparison);
  return floor;
}

}  // namespace

std::vector<double> round_seconds(const Recording& recording) {
  return round_medians(recording, [](const Sample& sample) { return sample.seconds; });
}

std::vector<double> round_cycles(const Recording& recording) {
  if (!clock_known(recording)) return {};
  return round_medians(recording, [](const Sample& sample) { return sample.seconds * sample.clock_hz; });
}

double quickest_seconds(const Recording& recording) {
  double quickest = std::numeric_limits<double>::infinity();
  for (const auto& round : recording.rounds)
    for (const Sample& sample : round) quickest = std::min(quickest, sample.seconds);
  return quickest;
}

RoundRatio round_ratio(const Recording& numerator, const Recording& denominator, const stats::VerdictRule& rule,
                       double numerator_work, double denominator_work) {
  RoundRatio ratio;
  ratio.by_round = divide(round_seconds(numerator), round_seconds(denominator));
  for (double& value : ratio.by_round) value *= denominator_work / numerator_work;
  ratio.estimate = stats::median(ratio.by_round);
  ratio.interval = stats::order_interval(ratio.by_round, rule.coverage);
  ratio.of_quickest = quickest_seconds(numerator) / quickest_seconds(denominator) * denominator_work / numerator_work;
  return ratio;
}

std::string_view name_of(Role role) { return role_names[static_cast<size_t>(role)]; }

Role role_from(std::string_view name) {
  for (size_t i = 0; i < role_names.size(); ++i)
    if (name == role_names[i]) return static_cast<Role>(i);
  fail(ATTUNE_INVALID_ARGUMENT, "role '{}' is none of baseline, twin, contender, probe", name);
}

void check(const Protocol& protocol) {
  const auto require = [](bool ok, const char* name, auto value, const char* allowed) {
    if (!ok) fail(ATTUNE_INVALID_ARGUMENT, "protocol: {} is {}; {}", name, value, allowed);
  };
  require(protocol.rounds >= 1 && protocol.rounds <= 10000, "rounds", protocol.rounds, "1 to 10000 are allowed");
  require(protocol.samples >= 1 && protocol.samples <= 10000, "samples", protocol.samples, "1 to 10000 are allowed");
  require(protocol.sample_seconds > 0, "sample_seconds", protocol.sample_seconds, "it must be above 0");
  require(protocol.budget_seconds >= 0, "budget_seconds", protocol.budget_seconds, "0 is none");
  require(protocol.warm_up_batches >= 2, "warm_up_batches", protocol.warm_up_batches, "at least 2 can agree");
  require(protocol.warm_up_agreement > 0, "warm_up_agreement", protocol.warm_up_agreement, "it must be above 0");
  require(protocol.warm_up_seconds >= 0, "warm_up_seconds", protocol.warm_up_seconds, "it must not be negative");
  constexpr std::array modes{"cpu", "steady", "cold", "pdl", "host"};
  require(std::find(modes.begin(), modes.end(), protocol.mode) != modes.end(), "mode", protocol.mode,
          "known are cpu, steady, cold, pdl and host");
  require(protocol.noise_bar > 0, "noise_bar", protocol.noise_bar, "it must be above 0");
  require(protocol.quiet_cpus >= 0, "quiet_cpus", protocol.quiet_cpus, "0 is wherever the system puts threads");
}

Analysis analyse(const Measurement& measurement) {
  check(measurement);
  const Protocol& protocol = measurement.protocol;
  Analysis analysis;
  const Recording& baseline = measurement.recordings.front();
  uint64_t seed = protocol.seed;
  for (const Recording& recording : measurement.recordings) {
    analysis.summaries.push_back(summarise(recording, ++seed));
    if (recording.role == Role::baseline || recording.role == Role::probe) continue;
    Comparison comparison = compare(recording, baseline, protocol, ++seed);
    if (recording.role == Role::twin)
      analysis.noise_floor = noise_floor(std::move(comparison), protocol);
    else
      analysis.comparisons.push_back(std::move(comparison));
  }
  return analysis;
}

stats::Verdict within_noise(stats::Verdict verdict, const std::optional<NoiseFloor>& floor,
                            const stats::VerdictRule& rule) {
  if (!floor || verdict.outcome == stats::Outcome::unclear) return verdict;
  const stats::Interval& copies = floor->comparison.verdict.interval;
  const double noise = std::max({copies.upper, 1 / copies.lower, 1.0});
  const bool same = verdict.outcome == stats::Outcome::same;
  const double claimed = same ? 1 + rule.delta : std::max(verdict.estimate, 1 / verdict.estimate);
  if (claimed > noise) return verdict;
  verdict.reason = fmt::format("{}, but two copies of the baseline differed by [{:.4f}, {:.4f}]",
                               stats::name_of(verdict.outcome), copies.lower, copies.upper);
  verdict.outcome = stats::Outcome::unclear;
  return verdict;
}

}  // namespace attune::lab
