#include "lab/report/svg_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lab/report/svg_text.hpp"

namespace attune::lab {
namespace {

constexpr double panel_width = 420, panel_height = 260;
constexpr double left = 56, right = 14, top = 30, bottom = 40;  // within a panel
constexpr double head = 58;                                     // title and legend
// Told apart also by those who see few colours.
constexpr std::array colours{"#0b5fa5", "#d55e00", "#009e73", "#7a7a7a", "#cc79a7", "#b8860b"};

// 1, 2 or 5 times a power of ten, so that about five steps reach the value.
double tick_step(double largest) {
  const double rough = largest / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

std::vector<std::string> names_of(const Chart& chart) {
  std::vector<std::string> names;
  for (const ChartPanel& panel : chart.panels)
    for (const ChartSeries& series : panel.series)
      if (std::ranges::find(names, series.name) == names.end()) names.push_back(series.name);
  return names;
}

// Every panel gets the same scale, so that they can be compared.
double largest_of(const Chart& chart) {
  double largest = 0;
  for (const ChartPanel& panel : chart.panels)
    for (const ChartSeries& series : panel.series)
      for (const auto& point : series.points)
        if (point) largest = std::max(largest, point->upper);
  return largest > 0 ? largest : 1;
}

class PanelWriter {
 public:
  PanelWriter(const ChartPanel& panel, const std::vector<std::string>& names, double x, double y, double largest)
      : panel_(panel), names_(names), x_(x), y_(y), step_(tick_step(largest)) {
    highest_ = step_ * std::ceil(largest / step_);
  }

  std::string write(const Chart& chart) const {
    std::string svg = svg_text(x_ + left, y_ + 18, "start", panel_.title, "font-weight=\"bold\"");
    for (int i = 0; step_ * i <= highest_ * 1.0001; ++i) {
      const double y = y_of(step_ * i);
      svg += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x_ + left,
                         y, x_ + panel_width - right, y, i == 0 ? "#444" : "#ddd");
      svg += svg_text(x_ + left - 6, y + 4, "end", fmt::format("{:g}", step_ * i));
    }
    for (size_t i = 0; i < panel_.labels.size(); ++i)
      svg += svg_text(x_of(i), y_ + panel_height - bottom + 16, "middle", panel_.labels[i]);
    svg += svg_text(x_ + (left + panel_width - right) / 2, y_ + panel_height - 8, "middle", chart.x_name);
    const double middle = y_ + (top + panel_height - bottom) / 2;
    svg += svg_text(x_ + 12, middle, "middle", chart.y_name,
                    fmt::format("transform=\"rotate(-90 {:.1f} {:.1f})\"", x_ + 12, middle));
    for (const ChartSeries& series : panel_.series) svg += write(series);
    return svg;
  }

 private:
  double x_of(size_t label) const {
    const double space = (panel_width - left - right) / static_cast<double>(panel_.labels.size());
    return x_ + left + space * (static_cast<double>(label) + 0.5);
  }
  double y_of(double value) const {
    return y_ + panel_height - bottom - (panel_height - top - bottom) * value / highest_;
  }

  std::string write(const ChartSeries& series) const {
    const auto number = static_cast<size_t>(std::ranges::find(names_, series.name) - names_.begin());
    const char* colour = colours[number % colours.size()];
    std::string path, marks;
    for (size_t i = 0; i < series.points.size(); ++i) {
      if (!series.points[i]) continue;
      const ChartPoint& point = *series.points[i];
      const double x = x_of(i), y = y_of(point.value);
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", x, y);
      marks += fmt::format("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\"/>\n", x,
                           y_of(point.lower), y_of(point.upper), colour);
      marks +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"><title>{}: {:.4g}</title></circle>\n", x,
                      y, colour, svg_escaped(series.name), point.value);
    }
    if (path.empty()) return "";
    return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", path, colour,
                       series.dashed ? " stroke-dasharray=\"5 4\"" : "") +
           marks;
  }

  const ChartPanel& panel_;
  const std::vector<std::string>& names_;
  double x_, y_;
  double step_, highest_ = 1;
};

}  // namespace

std::string svg_of(const Chart& chart) {
  const std::vector<std::string> names = names_of(chart);
  const double largest = largest_of(chart);
  const auto rows = (static_cast<int>(chart.panels.size()) + chart.columns - 1) / chart.columns;
  const double width = panel_width * chart.columns, height = head + panel_height * rows;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, height);
  svg += svg_text(left, 22, "start", chart.title, "font-size=\"15\" font-weight=\"bold\"");
  double x = left;
  for (size_t i = 0; i < names.size(); ++i) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"36\" width=\"14\" height=\"4\" fill=\"{}\"/>\n", x,
                       colours[i % colours.size()]);
    svg += svg_text(x + 20, 42, "start", names[i]);
    x += 40 + 7 * static_cast<double>(names[i].size());
  }
  for (size_t i = 0; i < chart.panels.size(); ++i) {
    const auto column = static_cast<int>(i) % chart.columns, row = static_cast<int>(i) / chart.columns;
    svg += PanelWriter(chart.panels[i], names, panel_width * column, head + panel_height * row, largest).write(chart);
  }
  return svg + "</svg>\n";
}

}  // namespace attune::lab
