// Two runs of the same table compared: whether a verdict depends on the day.
#pragma once

#include <string>
#include <vector>

#include "lab/report/speed_rows.hpp"

namespace attune::lab {

struct Repeat {
  std::string problem, peer;
  double first_ratio = 0, second_ratio = 0;
  stats::Outcome first = stats::Outcome::unclear, second = stats::Outcome::unclear;

  // From faster to slower or back: one of the two runs was wrong.
  bool flipped() const;
  // Clear in one of the runs only.
  bool became_clear_or_unclear() const;
};

struct Repeatability {
  std::vector<Repeat> repeats;  // one per problem and measured peer that both runs have

  int flips() const;
  int moves() const;
  bool holds() const;  // at least one repeat, no flip, and at most 5 % of them moved to or from unclear
};

Repeatability compare_runs(const std::vector<SpeedRow>& first, const std::vector<SpeedRow>& second);

}  // namespace attune::lab
