// A chart of ratios as SVG text, a row each: a point with its interval on a logarithmic axis, beside a line at 1. The
// same input gives the same bytes on every machine.
#pragma once

#include <string>
#include <vector>

#include "lab/stats/interval.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {

struct RatioRow {
  std::string label, note;  // to the left and to the right of the point
  double estimate = 1;      // above 0
  stats::Interval interval;
  stats::Outcome outcome = stats::Outcome::unclear;  // its colour
};

struct RatioChart {
  std::string title, axis;
  std::vector<RatioRow> rows;
};

std::string svg_of(const RatioChart& chart);

}  // namespace attune::lab
