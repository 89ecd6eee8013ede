#include "lab/guard/baseline.hpp"

#include <cmath>

#include "core/error.hpp"
#include "lab/output.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

constexpr const char* schema = "attune-baseline";

json row_json(const RoundValues& row) {
  std::vector<double> microseconds;
  for (const double value : row.seconds) microseconds.push_back(value * 1e6);
  const stats::Interval interval = stats::order_interval(microseconds);
  json result{{"median_us", stats::median(microseconds)},
              {"ci95_us", {interval.lower, interval.upper}},
              {"rounds_us", microseconds}};
  if (!row.cycles.empty()) result["rounds_cycles"] = row.cycles;
  return result;
}

const json& member(const json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key)) fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is missing", where, key);
  return object.at(key);
}

std::string text_member(const json& object, const char* key, const std::string& where) {
  const json& value = member(object, key, where);
  if (!value.is_string()) fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is no text", where, key);
  return value;
}

std::vector<double> positive_numbers(const json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) fail(ATTUNE_INVALID_ARGUMENT, "{} is no list of numbers", where);
  std::vector<double> values;
  for (const json& entry : list) {
    if (!entry.is_number() || !(entry.get<double>() > 0) || !std::isfinite(entry.get<double>()))
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {} is no number above 0", where, entry.dump());
    values.push_back(entry);
  }
  return values;
}

RoundValues row_from_json(const json& row, const std::string& where) {
  RoundValues values;
  const std::vector<double> microseconds =
      positive_numbers(member(row, "rounds_us", where), fmt::format("{}, rounds_us", where));
  for (const double value : microseconds) values.seconds.push_back(value * 1e-6);
  if (row.contains("rounds_cycles")) {
    values.cycles = positive_numbers(row.at("rounds_cycles"), fmt::format("{}, rounds_cycles", where));
    if (values.cycles.size() != values.seconds.size())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: {} rounds in cycles and {} in time", where, values.cycles.size(),
           values.seconds.size());
  }
  const json& median = member(row, "median_us", where);
  const double expected = stats::median(microseconds);
  if (!median.is_number() || std::abs(median.get<double>() - expected) > 1e-9 * expected)
    fail(ATTUNE_INVALID_ARGUMENT, "{}: median_us is {}; the rounds say {}", where, median.dump(), expected);
  return values;
}

}  // namespace

json to_json(const Baseline& baseline) {
  json results = json::object();
  for (const auto& [problem, row] : baseline.rows) results[problem] = row_json(row);
  return {{"schema", schema},      {"version", baseline_version},         {"created", baseline.created},
          {"mode", baseline.mode}, {"environment", baseline.environment}, {"results", std::move(results)}};
}

Baseline baseline_from_json(const json& json, const std::string& name) {
  if (text_member(json, "schema", name) != schema || member(json, "version", name) != baseline_version)
    fail(ATTUNE_INVALID_ARGUMENT, "{}: is no {} of version {}", name, schema, baseline_version);
  Baseline baseline;
  baseline.created = text_member(json, "created", name);
  baseline.mode = text_member(json, "mode", name);
  const auto& environment = member(json, "environment", name);
  if (!environment.is_object()) fail(ATTUNE_INVALID_ARGUMENT, "{}: environment is no object", name);
  for (const auto& [key, value] : environment.items())
    baseline.environment[key] = text_member(environment, key.c_str(), name + ", environment");
  const auto& results = member(json, "results", name);
  if (!results.is_object() || results.empty()) fail(ATTUNE_INVALID_ARGUMENT, "{}: results is empty or no object", name);
  for (const auto& [problem, row] : results.items())
    baseline.rows[problem] = row_from_json(row, fmt::format("{}, '{}'", name, problem));
  return baseline;
}

Baseline load_baseline(const std::string& path) {
  const std::string text = text_of_file(path);
  try {
    return baseline_from_json(json::parse(text), path);
  } catch (const json::exception& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "{}: {}", path, error.what());
  }
}

void save_baseline(const Baseline& baseline, const std::string& path) {
  write_file(path, to_json(baseline).dump(1) + "\n");
}

std::string incomparable(const Baseline& baseline, const Facts& environment, const std::string& mode) {
  const auto fact = [](const Facts& facts, const char* key) {
    const auto found = facts.find(key);
    return found == facts.end() ? std::string("none") : found->second;
  };
  if (baseline.mode != mode) return fmt::format("it was measured in the mode {}, this run in {}", baseline.mode, mode);
  for (const char* key : {"card", "processor", "cpus"}) {
    // A GPU's time does not depend on the processor beside it.
    if (key != std::string_view("card") && environment.contains("card")) continue;
    const std::string then = fact(baseline.environment, key), now = fact(environment, key);
    if (then != now) return fmt::format("its {} was {}, here it is {}", key, then, now);
  }
  return "";
}

}  // namespace attune::lab
