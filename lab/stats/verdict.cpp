#include "lab/stats/verdict.hpp"

#include <array>
#include <cmath>

#include "core/error.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab::stats {
namespace {

constexpr std::array outcome_names{"faster", "slower", "same", "unclear"};

// -1: all below 1, +1: all above, 0: 1 is inside.
int side_of_one(const Interval& interval) {
  if (interval.upper < 1) return -1;
  return interval.lower > 1 ? 1 : 0;
}

}  // namespace

std::string_view name_of(Outcome outcome) { return outcome_names[static_cast<size_t>(outcome)]; }

Outcome outcome_from(std::string_view name) {
  for (size_t i = 0; i < outcome_names.size(); ++i)
    if (name == outcome_names[i]) return static_cast<Outcome>(i);
  fail(ATTUNE_INVALID_ARGUMENT, "verdict '{}' is none of faster, slower, same, unclear", name);
}

Verdict judge(std::span<const double> ratios, std::span<const double> cycle_ratios, const VerdictRule& rule) {
  require_positive(ratios, "judge");
  if (!(rule.delta > 0 && rule.delta < 1)) fail(ATTUNE_INVALID_ARGUMENT, "delta is {}; it is in (0, 1)", rule.delta);
  Verdict verdict;
  verdict.estimate = median(ratios);
  verdict.interval = order_interval(ratios, rule.coverage);
  if (!cycle_ratios.empty()) {
    require_positive(cycle_ratios, "judge (cycles)");
    verdict.cycle_estimate = median(cycle_ratios);
    verdict.cycle_interval = order_interval(cycle_ratios, rule.coverage);
  }
  if (verdict.interval.coverage < rule.coverage) {
    verdict.reason = fmt::format("{} rounds cannot give an interval of {:.0f} %", ratios.size(), 100 * rule.coverage);
    return verdict;
  }

  const int side = side_of_one(verdict.interval);
  const bool large = std::abs(verdict.estimate - 1) > rule.delta / 2;
  if (side != 0 && large) {
    verdict.outcome = side < 0 ? Outcome::faster : Outcome::slower;
    verdict.reason = verdict.cycle_interval && side_of_one(*verdict.cycle_interval) != side
                         ? "the interval is clear of 1; in clock cycles it is not, so the difference is the clock's"
                         : "the interval is clear of 1";
  } else if (verdict.interval.lower >= 1 - rule.delta && verdict.interval.upper <= 1 + rule.delta) {
    verdict.outcome = Outcome::same;
    verdict.reason = fmt::format("the interval lies within {:g} % of 1", 100 * rule.delta);
  } else if (side != 0) {
    verdict.reason = fmt::format("the effect is below {:g} %", 50 * rule.delta);
  } else {
    verdict.reason = "the interval holds 1 and reaches further than allowed for the same";
  }
  return verdict;
}

bool not_slower_by(const Verdict& verdict, double tolerance) { return verdict.interval.upper < 1 + tolerance; }

bool reaches(double speedup, double lower_end, double bar) {
  return speedup >= bar && lower_end >= bar * (1 - bar_slack);
}

bool meets_bar(const Verdict& verdict, double speedup) {
  return reaches(1 / verdict.estimate, 1 / verdict.interval.upper, speedup);
}

}  // namespace attune::lab::stats
