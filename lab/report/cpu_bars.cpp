#include "lab/report/cpu_bars.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "bars_toml.hpp"
#include "lab/report/bar_reader.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {
namespace {

using Kind = CpuBar::Kind;

constexpr std::array kind_names{"share", "gflops", "speedup", "microseconds"};

CpuBar cpu_bar_from(const toml::table& table) {
  const BarReader reader("cpu_bar", table,
                         {"name", "set", "words", "without", "lengths", "kernel", "threads", "over_threads", "of",
                          "share", "gflops", "speedup", "microseconds", "stretch"});
  CpuBar bar;
  static_cast<BarCoverage&>(bar) = reader.coverage();
  int kinds = 0;
  for (size_t i = 0; i < kind_names.size(); ++i) {
    const std::optional<double> value = reader.number(kind_names[i]);
    if (!value) continue;
    ++kinds;
    bar.kind = static_cast<Kind>(i);
    bar.value = *value;
  }
  if (kinds != 1) reader.complain("share", "or one of gflops, speedup, microseconds is needed, and no second");
  if (bar.kind == Kind::share) bar.of = reader.text("of");
  bar.stretch = reader.number("stretch");
  bar.threads = static_cast<int>(reader.number("threads").value_or(0));
  bar.over_threads = static_cast<int>(reader.number("over_threads").value_or(0));
  if (bar.kind == Kind::speedup && (bar.threads == 0 || bar.over_threads == 0))
    reader.complain("speedup", "needs threads and over_threads");
  if (table.contains("kernel")) bar.kernel = reader.text("kernel");
  return bar;
}

// In the bar's unit; nothing where it was not measured.
std::optional<Measured> figure_of(const CpuBar& bar, const CpuRow& row) {
  const auto found = [](const auto& map, const auto& key) -> std::optional<Measured> {
    const auto place = map.find(key);
    return place == map.end() ? std::nullopt : std::optional(place->second);
  };
  const stats::Interval& seconds = row.seconds.interval;
  switch (bar.kind) {
    case Kind::share:
      return found(row.shares, bar.of);
    case Kind::speedup:
      return found(row.speedups, bar.over_threads);
    case Kind::gflops:
      return Measured{row.flops / row.seconds.estimate / 1e9,
                      {row.flops / seconds.upper / 1e9, row.flops / seconds.lower / 1e9, seconds.coverage},
                      row.flops / row.seconds.quickest / 1e9};
    case Kind::microseconds:
      break;
  }
  return Measured{row.seconds.estimate * 1e6,
                  {seconds.lower * 1e6, seconds.upper * 1e6, seconds.coverage},
                  row.seconds.quickest * 1e6};
}

// How many times the bar was reached.
struct Reached {
  double quickest, estimate, worse_end;
};
Reached reached(const CpuBar& bar, const Measured& figure) {
  if (bar.kind == Kind::microseconds)
    return {bar.value / figure.quickest, bar.value / figure.estimate, bar.value / figure.interval.upper};
  return {figure.quickest / bar.value, figure.estimate / bar.value, figure.interval.lower / bar.value};
}

// Why the bar says nothing about these rows, which are all there are of its problems; "" if it does.
std::string inapplicability(const CpuBar& bar, const std::vector<const CpuRow*>& rows) {
  for (const CpuRow* row : rows)
    if (!bar.kernel.empty() && row->kernel != bar.kernel)
      return fmt::format("it is for {}, and {} was measured", bar.kernel, row->kernel);
  return "";
}

CpuBarResult judge(const CpuBar& bar, int threads, const std::vector<const CpuRow*>& rows) {
  CpuBarResult result;
  result.bar = bar;
  result.threads = threads;
  result.rows = rows.size();
  result.why = inapplicability(bar, rows);
  if (!result.why.empty()) {
    result.state = BarState::inapplicable;
    return result;
  }
  double farthest = 0;
  bool met = true, met_by_rounds = true;
  for (const CpuRow* row : rows) {
    const std::optional<Measured> figure = figure_of(bar, *row);
    if (!figure) {
      result.why = fmt::format("not measured at '{}'", row->problem);
      return result;
    }
    const auto [quickest, estimate, worse_end] = reached(bar, *figure);
    met = met && quickest >= 1;
    met_by_rounds = met_by_rounds && stats::reaches(estimate, worse_end, 1);
    if (result.farthest && quickest >= farthest) continue;
    farthest = quickest;
    result.farthest = figure;
    result.farthest_problem = row->problem;
  }
  for (const std::string& problem : bar.problems())
    if (std::ranges::none_of(rows, [&](const CpuRow* row) { return row->problem == problem; })) {
      result.why = fmt::format("'{}' was not measured", problem);
      return result;
    }
  result.state = met ? BarState::met : BarState::missed;
  if (met)
    result.why = met_by_rounds ? "" : "by the quickest samples, not in all medians";
  else if (rows.size() > 1)
    result.why = fmt::format("the farthest is '{}'", result.farthest_problem);
  return result;
}

std::string value_text(const CpuBar& bar, double value) {
  switch (bar.kind) {
    case Kind::share:
      return fmt::format("{:.0f} % of {}", 100 * value, bar.of);
    case Kind::gflops:
      return fmt::format("{:.0f} GFLOP/s", value);
    case Kind::speedup:
      return fmt::format("{:.2f}x", value);
    case Kind::microseconds:
      break;
  }
  return fmt::format("at most {:g} us", value);
}

struct Format {
  double scale;
  int digits;
  std::string_view unit;
};
Format format_of(const CpuBar& bar) {
  switch (bar.kind) {
    case Kind::share:
      return {100, 1, " %"};
    case Kind::gflops:
      return {1, 0, " GFLOP/s"};
    case Kind::speedup:
      return {1, 2, "x"};
    case Kind::microseconds:
      break;
  }
  return {1, 2, " us"};
}

std::string quickest_text(const CpuBar& bar, const Measured& measured) {
  const auto [scale, digits, unit] = format_of(bar);
  return fmt::format("{:.{}f}{}", measured.quickest * scale, digits, unit);
}

std::string median_text(const CpuBar& bar, const Measured& measured) {
  const auto [scale, digits, unit] = format_of(bar);
  return fmt::format("{:.{}f}{} [{:.{}f}, {:.{}f}]", measured.estimate * scale, digits, unit,
                     measured.interval.lower * scale, digits, measured.interval.upper * scale, digits);
}

}  // namespace

std::vector<CpuBar> cpu_bars_from(std::string_view text) {
  std::vector<CpuBar> bars;
  for_each_bar(text, "cpu_bar", [&](const toml::table& table) { bars.push_back(cpu_bar_from(table)); });
  return bars;
}

const std::vector<CpuBar>& cpu_bars() {
  static const std::vector<CpuBar> list = cpu_bars_from(bars_toml);
  return list;
}

std::vector<CpuBarResult> compare_with_cpu_bars(const std::vector<CpuRow>& rows, const std::vector<CpuBar>& bars) {
  std::vector<CpuBarResult> results;
  for (const CpuBar& bar : bars) {
    const std::vector<std::string> problems = bar.problems();
    std::map<int, std::vector<const CpuRow*>> by_threads;
    for (const CpuRow& row : rows)
      if (std::ranges::find(problems, row.problem) != problems.end()) by_threads[row.threads].push_back(&row);
    if (by_threads.empty()) continue;
    if (bar.threads == 0) {
      for (const auto& [threads, of_them] : by_threads) results.push_back(judge(bar, threads, of_them));
      continue;
    }
    const auto counted_so = by_threads.find(bar.threads);
    const bool both = bar.over_threads == 0 || by_threads.contains(bar.over_threads);
    if (counted_so != by_threads.end() && both) {
      results.push_back(judge(bar, bar.threads, counted_so->second));
      continue;
    }
    CpuBarResult& result = results.emplace_back();
    result.bar = bar;
    result.threads = bar.threads;
    result.state = BarState::inapplicable;
    result.why = bar.over_threads == 0
                     ? fmt::format("it is for {}: --threads {}", counted(bar.threads, "thread"), bar.threads)
                     : fmt::format("it is for two numbers of threads: --threads {},{}", bar.over_threads, bar.threads);
  }
  return results;
}

Table cpu_bars_table(const std::vector<CpuBarResult>& results) {
  using Align = Table::Align;
  Table table({{"bar"},
               {"threads", Align::right},
               {"rows", Align::right},
               {"quickest", Align::right},
               {"median", Align::right},
               {"bar", Align::right},
               {"stretch", Align::right},
               {"state"}});
  for (const CpuBarResult& result : results)
    table.add({result.bar.name, std::to_string(result.threads), std::to_string(result.rows),
               result.farthest ? quickest_text(result.bar, *result.farthest) : "-",
               result.farthest ? median_text(result.bar, *result.farthest) : "-",
               value_text(result.bar, result.bar.value),
               result.bar.stretch ? value_text(result.bar, *result.bar.stretch) : "-",
               result.why.empty() ? std::string(name_of(result.state))
                                  : fmt::format("{}: {}", name_of(result.state), result.why)});
  return table;
}

nlohmann::json to_json(const CpuBarResult& result) {
  nlohmann::json object = {{"bar", result.bar.name},         {"kind", kind_names[static_cast<size_t>(result.bar.kind)]},
                           {"value", result.bar.value},      {"threads", result.threads},
                           {"state", name_of(result.state)}, {"rows", result.rows}};
  if (result.bar.stretch) object["stretch"] = *result.bar.stretch;
  if (!result.bar.of.empty()) object["of"] = result.bar.of;
  if (!result.why.empty()) object["why"] = result.why;
  if (result.farthest) {
    object["quickest"] = result.farthest->quickest;
    object["median"] = result.farthest->estimate;
    object["interval"] = {result.farthest->interval.lower, result.farthest->interval.upper};
    object["problem"] = result.farthest_problem;
  }
  return object;
}

}  // namespace attune::lab
