#include "lab/report/bars.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bars_toml.hpp"
#include "lab/report/bar_reader.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {
namespace {

constexpr uint64_t bootstrap_seed = 1;
constexpr std::string_view any_peer = "any";

Bar bar_from(const toml::table& table) {
  const BarReader reader(
      "bar", table,
      {"name", "set", "words", "without", "lengths", "against", "mean", "floor", "stretch", "tensor_share"});
  Bar bar;
  static_cast<BarCoverage&>(bar) = reader.coverage();
  bar.against = reader.texts("against");
  bar.mean = reader.number("mean");
  bar.floor = reader.number("floor");
  bar.stretch = reader.number("stretch");
  bar.tensor_share = reader.number("tensor_share");
  if (bar.tensor_share ? bar.mean || bar.floor : !bar.mean && !bar.floor)
    reader.complain("mean", "or floor is needed, or tensor_share alone");
  if (!bar.tensor_share && bar.against.empty()) reader.complain("against", "names nobody");
  return bar;
}

// The rows a bar needs, or what is missing.
std::string missing_for(const Bar& bar, const std::vector<const SpeedRow*>& rows) {
  for (const std::string& problem : bar.problems())
    if (std::ranges::none_of(rows, [&](const SpeedRow* row) { return row->problem == problem; }))
      return fmt::format("'{}' was not measured", problem);
  for (const SpeedRow* row : rows) {
    for (const std::string& peer : bar.against)
      if (peer == any_peer ? row->peers.empty() : row->find(peer) == nullptr)
        return fmt::format("{} is missing at '{}'", peer == any_peer ? "every peer" : peer, row->problem);
    if (bar.tensor_share && row->tensor_shares.empty())
      return fmt::format("clock or number of SMs is not known at '{}'", row->problem);
  }
  return "";
}

// What fell short, "" if nothing did.
std::string shortfall(const BarResult& result) {
  const Bar& bar = result.bar;
  std::string why;
  const std::optional<double> of_mean = bar.tensor_share ? bar.tensor_share : bar.mean;
  if (of_mean && !stats::reaches(result.mean->estimate, result.mean->interval.lower, *of_mean))
    why = fmt::format("{:.3f} [{:.3f}, {:.3f}] does not reach {:.2f}", result.mean->estimate,
                      result.mean->interval.lower, result.mean->interval.upper, *of_mean);
  if (!bar.floor) return why;
  const auto below = std::ranges::count_if(result.rows, [&](const SpeedRow* row) {
    return !stats::reaches(row->fastest()->estimate, row->fastest()->interval.lower, *bar.floor);
  });
  if (below > 0)
    why += fmt::format("{}{} of {} rows below the floor of {:.2f}, the lowest '{}' against {}", why.empty() ? "" : "; ",
                       below, result.rows.size(), *bar.floor, result.lowest->problem, result.lowest->fastest()->peer);
  return why;
}

BarResult compare_with(const Bar& bar, const std::vector<SpeedRow>& rows) {
  BarResult result;
  result.bar = bar;
  const std::vector<std::string> problems = bar.problems();
  for (const SpeedRow& row : rows)
    if (std::ranges::find(problems, row.problem) != problems.end() && row.contender == rows.front().contender)
      result.rows.push_back(&row);
  std::vector<std::vector<double>> ratios;
  for (const SpeedRow* row : result.rows) {
    const Against* fastest = row->fastest();
    if (bar.tensor_share) {
      if (!row->tensor_shares.empty()) ratios.push_back(row->tensor_shares);
    } else if (fastest != nullptr) {
      ratios.push_back(fastest->ratios);
      if (result.lowest == nullptr || fastest->estimate < result.lowest->fastest()->estimate) result.lowest = row;
    }
  }
  if (!ratios.empty()) result.mean = stats::geometric_mean_ratio(ratios, bootstrap_seed);
  result.why = missing_for(bar, result.rows);
  if (!result.why.empty()) return result;
  result.why = shortfall(result);
  result.state = result.why.empty() ? BarState::met : BarState::missed;
  return result;
}

}  // namespace

std::vector<Bar> bars_from(std::string_view text) {
  std::vector<Bar> bars;
  for_each_bar(text, "bar", [&](const toml::table& table) { bars.push_back(bar_from(table)); });
  return bars;
}

const std::vector<Bar>& bars() {
  static const std::vector<Bar> list = bars_from(bars_toml);
  return list;
}

std::string_view name_of(BarState state) {
  switch (state) {
    case BarState::met:
      return "met";
    case BarState::missed:
      return "missed";
    case BarState::inapplicable:
      return "does not apply";
    case BarState::incomplete:
      break;
  }
  return "incomplete";
}

std::vector<BarResult> compare_with_bars(const std::vector<SpeedRow>& rows, const std::vector<Bar>& bars) {
  std::vector<BarResult> results;
  for (const Bar& bar : bars) {
    BarResult result = compare_with(bar, rows);
    if (!result.rows.empty()) results.push_back(std::move(result));
  }
  return results;
}

}  // namespace attune::lab
