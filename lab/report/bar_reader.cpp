#include "lab/report/bar_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/sets.hpp"

namespace attune::lab {
namespace {

std::set<std::string> words_of(const std::string& problem) {
  std::istringstream text(problem);
  return {std::istream_iterator<std::string>(text), {}};
}

}  // namespace

std::vector<std::string> BarCoverage::problems() const {
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

BarReader::BarReader(std::string_view kind, const toml::table& table, const std::vector<std::string_view>& known)
    : kind_(kind), table_(table) {
  for (const auto& [key, value] : table_)
    if (std::ranges::find(known, key.str()) == known.end()) complain(key.str(), "is not known");
}

BarCoverage BarReader::coverage() const {
  BarCoverage coverage;
  coverage.name = text("name");
  coverage.set = text("set");
  coverage.words = texts("words");
  coverage.without = texts("without");
  if (const toml::array* lengths = table_["lengths"].as_array()) {
    if (lengths->size() != 2) complain("lengths", "needs the shortest and the longest");
    coverage.shortest = (*lengths)[0].value_or(int64_t{0});
    coverage.longest = (*lengths)[1].value_or(int64_t{0});
  }
  if (coverage.problems().empty()) complain("words", fmt::format("leave no problem of the set {}", coverage.set));
  return coverage;
}

std::string BarReader::text(std::string_view key) const {
  const auto value = table_[key].value<std::string>();
  if (!value || value->empty()) complain(key, "is missing or no text");
  return *value;
}

std::vector<std::string> BarReader::texts(std::string_view key) const {
  std::vector<std::string> values;
  const toml::array* list = table_[key].as_array();
  if (list == nullptr) return values;
  for (const toml::node& node : *list) values.push_back(node.value_or(std::string()));
  return values;
}

std::optional<double> BarReader::number(std::string_view key) const {
  const auto value = table_[key].value<double>();
  if (table_.contains(key) && (!value || !(*value > 0))) complain(key, "is not a number above 0");
  return value;
}

void BarReader::complain(std::string_view key, std::string_view what) const {
  fail(ATTUNE_INVALID_ARGUMENT, "bars.toml, {} '{}': {} {}", kind_, table_["name"].value_or(std::string("?")), key,
       what);
}

void for_each_bar(std::string_view text, std::string_view kind, const std::function<void(const toml::table&)>& read) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "bars.toml, line {}: {}", error.source().begin.line, error.description());
  }
  for (const auto& [key, value] : table)
    if ((key != "bar" && key != "cpu_bar") || !value.is_array_of_tables())
      fail(ATTUNE_INVALID_ARGUMENT, "bars.toml: it holds [[bar]] entries and [[cpu_bar]] entries and nothing else");
  const toml::array* list = table[kind].as_array();
  if (list == nullptr) return;
  std::set<std::string> names;
  for (const toml::node& node : *list) {
    read(*node.as_table());
    const std::string name = (*node.as_table())["name"].value_or(std::string());
    if (!names.insert(name).second) fail(ATTUNE_INVALID_ARGUMENT, "bars.toml: two bars are named '{}'", name);
  }
}

}  // namespace attune::lab
