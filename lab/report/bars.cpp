#include "lab/report/bars.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "bars_toml.hpp"
#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/sets.hpp"
#include "lab/stats/verdict.hpp"

namespace attune::lab {
namespace {

constexpr uint64_t bootstrap_seed = 1;

std::set<std::string> words_of(const std::string& problem) {
  std::istringstream text(problem);
  return {std::istream_iterator<std::string>(text), {}};
}

class BarReader {
 public:
  explicit BarReader(const toml::table& table) : table_(table) {
    for (const auto& [key, value] : table_)
      if (std::ranges::find(known, key.str()) == std::end(known)) complain(key.str(), "is not known");
  }

  Bar read() const {
    Bar bar;
    bar.name = text("name");
    bar.set = text("set");
    bar.words = texts("words");
    bar.without = texts("without");
    bar.against = texts("against");
    bar.mean = number("mean");
    bar.floor = number("floor");
    bar.stretch = number("stretch");
    bar.tensor_share = number("tensor_share");
    if (const toml::array* lengths = table_["lengths"].as_array()) {
      if (lengths->size() != 2) complain("lengths", "needs the shortest and the longest");
      bar.shortest = (*lengths)[0].value_or(int64_t{0});
      bar.longest = (*lengths)[1].value_or(int64_t{0});
    }
    if (bar.tensor_share ? bar.mean || bar.floor : !bar.mean && !bar.floor)
      complain("mean", "or floor is needed, or tensor_share alone");
    if (!bar.tensor_share && bar.against.empty()) complain("against", "names nobody");
    if (bar.problems().empty()) complain("words", fmt::format("leave no problem of the set {}", bar.set));
    return bar;
  }

 private:
  static constexpr std::array<std::string_view, 10> known{"name",    "set",  "words", "without", "lengths",
                                                          "against", "mean", "floor", "stretch", "tensor_share"};

  [[noreturn]] void complain(std::string_view key, std::string_view what) const {
    fail(ATTUNE_INVALID_ARGUMENT, "bars.toml, bar '{}': {} {}", table_["name"].value_or(std::string("?")), key, what);
  }

  std::string text(std::string_view key) const {
    const auto value = table_[key].value<std::string>();
    if (!value || value->empty()) complain(key, "is missing or no text");
    return *value;
  }

  std::vector<std::string> texts(std::string_view key) const {
    std::vector<std::string> values;
    const toml::array* list = table_[key].as_array();
    if (list == nullptr) return values;
    for (const toml::node& node : *list) values.push_back(node.value_or(std::string()));
    return values;
  }

  std::optional<double> number(std::string_view key) const {
    const auto value = table_[key].value<double>();
    if (table_.contains(key) && (!value || !(*value > 0))) complain(key, "is not a number above 0");
    return value;
  }

  const toml::table& table_;
};

// The rows a bar needs, or what is missing.
std::string missing_for(const Bar& bar, const std::vector<const SpeedRow*>& rows) {
  for (const std::string& problem : bar.problems())
    if (std::ranges::none_of(rows, [&](const SpeedRow* row) { return row->problem == problem; }))
      return fmt::format("'{}' was not measured", problem);
  for (const SpeedRow* row : rows) {
    for (const std::string& peer : bar.against)
      if (row->find(peer) == nullptr) return fmt::format("{} is missing at '{}'", peer, row->problem);
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

std::vector<std::string> Bar::problems() const {
  std::vector<std::string> covered;
  for (const std::string& problem : find_set(set).problems) {
    const std::set<std::string> has = words_of(problem);
    const auto contained = [&](const std::string& word) { return has.contains(word); };
    const int64_t length = parse_problem(problem).seq_q;
    if (std::ranges::all_of(words, contained) && std::ranges::none_of(without, contained) && length >= shortest &&
        length <= longest)
      covered.push_back(problem);
  }
  return covered;
}

std::vector<Bar> bars_from(std::string_view text) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "bars.toml, line {}: {}", error.source().begin.line, error.description());
  }
  const toml::array* list = table["bar"].as_array();
  if (list == nullptr || table.size() != 1)
    fail(ATTUNE_INVALID_ARGUMENT, "bars.toml: it holds [[bar]] entries and nothing else");
  std::vector<Bar> bars;
  for (const toml::node& node : *list) {
    bars.push_back(BarReader(*node.as_table()).read());
    for (size_t i = 0; i + 1 < bars.size(); ++i)
      if (bars[i].name == bars.back().name)
        fail(ATTUNE_INVALID_ARGUMENT, "bars.toml: two bars are named '{}'", bars.back().name);
  }
  return bars;
}

const std::vector<Bar>& bars() {
  static const std::vector<Bar> list = bars_from(bars_toml);
  return list;
}

std::string_view name_of(BarState state) {
  if (state == BarState::met) return "met";
  return state == BarState::missed ? "missed" : "incomplete";
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
