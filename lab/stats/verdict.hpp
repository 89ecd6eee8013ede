// What a list of round ratios proves about two contenders: faster, slower, same, or nothing (unclear).
//
// A ratio is time(contender) / time(baseline) within one round: below 1 the contender is faster.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lab/stats/interval.hpp"

namespace attune::lab::stats {

enum class Outcome { faster, slower, same, unclear };
std::string_view name_of(Outcome outcome);
Outcome outcome_from(std::string_view name);

struct VerdictRule {
  double delta = 0.01;  // differences within +-delta count as none; a claim needs an effect above delta / 2
  double coverage = default_coverage;
};

struct Verdict {
  Outcome outcome = Outcome::unclear;
  double estimate = 0;  // median of the round ratios
  Interval interval;    // exact, of the ratios: what the outcome is gated on
  std::optional<double> cycle_estimate;
  std::optional<Interval> cycle_interval;  // the same of ratios in clock cycles, where the clock is known
  std::string reason;                      // one clause: which condition decided
};

// faster / slower: the interval is clear of 1 and the effect exceeds delta / 2. same: no such claim, and the whole
// interval lies within 1 +- delta. unclear: everything else, and too few rounds.
// Time alone decides, since time is what users get: a kernel that draws less power and so clocks higher is faster.
// Ratios in cycles stand beside it, and the reason says so where they tell another story. `cycle_ratios` is empty where
// clocks are not known.
Verdict judge(std::span<const double> ratios, std::span<const double> cycle_ratios, const VerdictRule& rule);

// "No slower than by `tolerance`" is proven: the upper end of the interval is below 1 + tolerance.
bool not_slower_by(const Verdict& verdict, double tolerance);

// A bar is a speed-up to be reached (time(baseline) / time(contender)): met when the estimate reaches it and the lower
// end of the interval is at most 1 % below it.
constexpr double bar_slack = 0.01;
bool reaches(double speedup, double lower_end, double bar);
bool meets_bar(const Verdict& verdict, double speedup);

}  // namespace attune::lab::stats
