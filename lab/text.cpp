#include "lab/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attune::lab {
namespace {

struct Unit {
  double seconds;
  std::string_view name;
};

Unit unit_for(double seconds) {
  if (seconds < 1e-3) return {1e-6, "us"};
  if (seconds < 1) return {1e-3, "ms"};
  return {1, "s"};
}

// Three significant digits without an exponent.
std::string three_digits(double value) {
  const int digits = value > 0 ? static_cast<int>(std::floor(std::log10(value))) : 0;
  return fmt::format("{:.{}f}", value, std::clamp(2 - digits, 0, 2));
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.title.size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());

  std::string text;
  const auto put = [&](size_t i, std::string_view cell) {
    if (i > 0) text += "  ";
    if (columns_[i].align == Align::right) {
      text += fmt::format("{:>{}}", cell, widths[i]);
    } else {
      text += fmt::format("{:<{}}", cell, widths[i]);
    }
  };
  const auto end_line = [&] {
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  for (size_t i = 0; i < columns_.size(); ++i) put(i, columns_[i].title);
  end_line();
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) put(i, row[i]);
    end_line();
  }
  return text;
}

std::string Table::markdown() const {
  std::string text, rule;
  for (const Column& column : columns_) {
    text += fmt::format("| {} ", column.title);
    rule += column.align == Align::right ? "|---:" : "|---";
  }
  text += fmt::format("|\n{}|\n", rule);
  for (const auto& row : rows_) {
    for (const std::string& cell : row) text += fmt::format("| {} ", cell);
    text += "|\n";
  }
  return text;
}

std::string duration_text(double seconds) {
  const Unit unit = unit_for(seconds);
  return fmt::format("{} {}", three_digits(seconds / unit.seconds), unit.name);
}

std::string duration_text(double seconds, double low, double high) {
  const Unit unit = unit_for(seconds);
  return fmt::format("{} {} [{}, {}]", three_digits(seconds / unit.seconds), unit.name,
                     three_digits(low / unit.seconds), three_digits(high / unit.seconds));
}

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace attune::lab
