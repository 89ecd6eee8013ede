// Is a build slower than the one before? Pure functions from what was measured to a verdict.
//
// Rows are judged in clock cycles: on a card at its power limit the clock beside one contender differs from that beside
// another by 1 to 2 %, whatever the code, and differs the same way in all rounds of a run. The set is judged in time,
// because time is what users get and over many rows the clock's luck cancels.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/guard/policy.hpp"
#include "lab/measure/analysis.hpp"
#include "lab/stats/interval.hpp"

namespace attune::lab {

// slower: the interval is clear of 1 and the estimate is beyond the margin. holds: the interval ends within the margin.
// unclear: neither.
enum class GuardVerdict { holds, slower, unclear };
std::string_view name_of(GuardVerdict verdict);

// After over before.
struct Slowdown {
  GuardVerdict verdict = GuardVerdict::unclear;
  double estimate = 0;
  stats::Interval interval;  // exact
  double margin = 0;
};

struct GuardedRow {
  std::string problem;
  bool in_cycles = false;
  Slowdown slowdown;
  double seconds_before = 0, seconds_after = 0;  // medians
  std::vector<double> time_ratios;               // one per round; empty against a stored baseline
};

struct GuardReport {
  std::vector<GuardedRow> rows;
  std::optional<Slowdown> set;  // none where rounds are not shared

  int count(GuardVerdict verdict) const;
  // slower if any row or the set is; unclear if the set is or too many rows are.
  GuardVerdict verdict(const GuardPolicy& policy) const;
};

// Both were measured in the same rounds.
GuardedRow guard_row(std::string problem, const Recording& before, const Recording& after, const GuardPolicy& policy);

// One value per round of each, from different rounds: the interval of the ratio is that of both medians together.
// Values are cycles where both have them.
struct RoundValues {
  std::vector<double> seconds, cycles;  // cycles: empty where the clock is not known
};
RoundValues round_values(const Recording& recording);
GuardedRow guard_stored_row(std::string problem, const RoundValues& before, const RoundValues& after,
                            const GuardPolicy& policy);

// The set is judged if every row has shared rounds, and equally many.
GuardReport guard_report(std::vector<GuardedRow> rows, const GuardPolicy& policy);

}  // namespace attune::lab
