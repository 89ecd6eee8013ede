#include "lab/report/ratio_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/svg_text.hpp"

namespace attune::lab {
namespace {

constexpr double ratio_label_width = 210, ratio_axis_width = 420, ratio_note_width = 210;
constexpr double ratio_row_height = 18, ratio_head = 40, ratio_foot = 44;

const char* colour_of(stats::Outcome outcome) {
  if (outcome == stats::Outcome::faster) return "#0b5fa5";
  return outcome == stats::Outcome::slower ? "#d55e00" : "#7a7a7a";
}

// From the least to the largest value, 1 and a little more included.
class RatioAxis {
 public:
  explicit RatioAxis(const std::vector<RatioRow>& rows) {
    for (const RatioRow& row : rows) {
      least_ = std::min({least_, row.interval.lower, row.estimate});
      most_ = std::max({most_, row.interval.upper, row.estimate});
    }
  }

  double x_of(double ratio) const {
    return ratio_label_width + ratio_axis_width * std::log(ratio / least_) / std::log(most_ / least_);
  }
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    for (const double tick : {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0})
      if (tick >= least_ && tick <= most_) ticks.push_back(tick);
    return ticks;
  }

 private:
  double least_ = 0.8, most_ = 2.2;
};

}  // namespace

std::string svg_of(const RatioChart& chart) {
  const RatioAxis axis(chart.rows);
  const double width = ratio_label_width + ratio_axis_width + ratio_note_width;
  const double bottom = ratio_head + ratio_row_height * static_cast<double>(chart.rows.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, bottom + ratio_foot);
  svg += svg_text(10, 22, "start", chart.title, "font-size=\"15\" font-weight=\"bold\"");
  for (const double tick : axis.ticks()) {
    svg += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n",
                       axis.x_of(tick), ratio_head - 4, bottom, tick == 1 ? "#444" : "#ddd");
    svg += svg_text(axis.x_of(tick), bottom + 14, "middle", fmt::format("{:g}", tick));
  }
  svg += svg_text(ratio_label_width + ratio_axis_width / 2, bottom + 34, "middle", chart.axis);
  double y = ratio_head + ratio_row_height / 2;
  for (const RatioRow& row : chart.rows) {
    const char* const colour = colour_of(row.outcome);
    svg += svg_text(ratio_label_width - 10, y + 4, "end", row.label);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" y2=\"{1:.1f}\" stroke=\"{3}\" stroke-width=\"2\"/>\n"
        "<circle cx=\"{4:.1f}\" cy=\"{1:.1f}\" r=\"4\" fill=\"{3}\"/>\n",
        axis.x_of(row.interval.lower), y, axis.x_of(row.interval.upper), colour, axis.x_of(row.estimate));
    svg += svg_text(ratio_label_width + ratio_axis_width + 14, y + 4, "start", row.note);
    y += ratio_row_height;
  }
  return svg + "</svg>\n";
}

}  // namespace attune::lab
