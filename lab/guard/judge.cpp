#include "lab/guard/judge.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

Slowdown judged(double estimate, const stats::Interval& interval, double margin) {
  Slowdown slowdown{GuardVerdict::unclear, estimate, interval, margin};
  // With too few rounds no interval has the coverage that a verdict needs.
  if (interval.coverage < stats::default_coverage) return slowdown;
  if (interval.lower > 1 && estimate > 1 + margin)
    slowdown.verdict = GuardVerdict::slower;
  else if (interval.upper <= 1 + margin)
    slowdown.verdict = GuardVerdict::holds;
  return slowdown;
}

Slowdown judged(const std::vector<double>& ratios, double margin) {
  return judged(stats::median(ratios), stats::order_interval(ratios), margin);
}

std::vector<double> ratios_of(const std::vector<double>& after, const std::vector<double>& before) {
  std::vector<double> ratios;
  for (size_t i = 0; i < after.size(); ++i) ratios.push_back(after[i] / before[i]);
  return ratios;
}

double margin_for(const std::string& problem, double margin, const GuardPolicy& policy) {
  const GuardException* exception = policy.exception_for(problem);
  return exception == nullptr ? margin : std::max(margin, exception->margin);
}

// Exact: in every round the rows together are one value, the geometric mean of their ratios.
Slowdown judged_set(const std::vector<GuardedRow>& rows, double margin) {
  std::vector<double> means, of_round(rows.size());
  for (size_t round = 0; round < rows.front().time_ratios.size(); ++round) {
    for (size_t i = 0; i < rows.size(); ++i) of_round[i] = rows[i].time_ratios[round];
    means.push_back(stats::geometric_mean(of_round));
  }
  return judged(means, margin);
}

}  // namespace

std::string_view name_of(GuardVerdict verdict) {
  constexpr std::array<std::string_view, 3> names{"holds", "slower", "unclear"};
  return names[static_cast<size_t>(verdict)];
}

RoundValues round_values(const Recording& recording) { return {round_seconds(recording), round_cycles(recording)}; }

GuardedRow guard_row(std::string problem, const Recording& before, const Recording& after, const GuardPolicy& policy) {
  const RoundValues old_values = round_values(before), new_values = round_values(after);
  if (old_values.seconds.size() != new_values.seconds.size())
    fail(ATTUNE_INVALID_ARGUMENT, "{}: {} rounds before and {} after; both need the same rounds", problem,
         old_values.seconds.size(), new_values.seconds.size());
  GuardedRow row;
  row.in_cycles = !old_values.cycles.empty() && !new_values.cycles.empty();
  row.seconds_before = stats::median(old_values.seconds);
  row.seconds_after = stats::median(new_values.seconds);
  row.time_ratios = ratios_of(new_values.seconds, old_values.seconds);
  row.slowdown = judged(row.in_cycles ? ratios_of(new_values.cycles, old_values.cycles) : row.time_ratios,
                        margin_for(problem, policy.row_margin, policy));
  row.problem = std::move(problem);
  return row;
}

GuardedRow guard_stored_row(std::string problem, const RoundValues& before, const RoundValues& after,
                            const GuardPolicy& policy) {
  GuardedRow row;
  row.in_cycles = !before.cycles.empty() && !after.cycles.empty();
  row.seconds_before = stats::median(before.seconds);
  row.seconds_after = stats::median(after.seconds);
  const std::vector<double>& old_values = row.in_cycles ? before.cycles : before.seconds;
  const std::vector<double>& new_values = row.in_cycles ? after.cycles : after.seconds;
  // Each median lies in its interval with at least half of the error allowed, so the ratio lies in the quotient.
  constexpr double coverage_of_each = 1 - (1 - stats::default_coverage) / 2;
  const stats::Interval old_interval = stats::order_interval(old_values, coverage_of_each);
  const stats::Interval new_interval = stats::order_interval(new_values, coverage_of_each);
  const stats::Interval quotient{new_interval.lower / old_interval.upper, new_interval.upper / old_interval.lower,
                                 old_interval.coverage + new_interval.coverage - 1};
  row.slowdown = judged(stats::median(new_values) / stats::median(old_values), quotient,
                        margin_for(problem, policy.stored_margin, policy));
  row.problem = std::move(problem);
  return row;
}

GuardReport guard_report(std::vector<GuardedRow> rows, const GuardPolicy& policy) {
  GuardReport report;
  report.rows = std::move(rows);
  const auto shared = [&](const GuardedRow& row) {
    return !row.time_ratios.empty() && row.time_ratios.size() == report.rows.front().time_ratios.size();
  };
  if (!report.rows.empty() && std::ranges::all_of(report.rows, shared))
    report.set = judged_set(report.rows, policy.set_margin);
  return report;
}

int GuardReport::count(GuardVerdict verdict) const {
  return static_cast<int>(
      std::ranges::count_if(rows, [&](const GuardedRow& row) { return row.slowdown.verdict == verdict; }));
}

GuardVerdict GuardReport::verdict(const GuardPolicy& policy) const {
  if (count(GuardVerdict::slower) > 0 || (set && set->verdict == GuardVerdict::slower)) return GuardVerdict::slower;
  // Nothing measured is nothing guarded.
  if (rows.empty() || (set && set->verdict == GuardVerdict::unclear)) return GuardVerdict::unclear;
  const double unclear = static_cast<double>(count(GuardVerdict::unclear)) / static_cast<double>(rows.size());
  return unclear > policy.unclear_share ? GuardVerdict::unclear : GuardVerdict::holds;
}

}  // namespace attune::lab
