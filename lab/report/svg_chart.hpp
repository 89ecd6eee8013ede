// Line charts as SVG text: a few panels of equal size, one colour per series, intervals as bars. The same input gives
// the same bytes on every machine, so that a committed chart can be compared with what the data give.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace attune::lab {

struct ChartPoint {
  double value = 0, lower = 0, upper = 0;
};

struct ChartSeries {
  std::string name;  // the same name is the same colour in every panel
  bool dashed = false;
  std::vector<std::optional<ChartPoint>> points;  // one per label of the panel; nothing: not measured
};

struct ChartPanel {
  std::string title;
  std::vector<std::string> labels;  // along x, evenly spaced
  std::vector<ChartSeries> series;
};

struct Chart {
  std::string title, x_name, y_name;
  int columns = 2;
  std::vector<ChartPanel> panels;
};

std::string svg_of(const Chart& chart);

}  // namespace attune::lab
