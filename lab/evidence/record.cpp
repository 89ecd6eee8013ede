#include "lab/evidence/record.hpp"

#include <xxhash.h>

#include <cmath>
#include <ctime>
#include <filesystem>

#include "core/error.hpp"
#include "lab/evidence/schema.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/output.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

std::string digest_of(json record) {
  record.erase("digest");
  const std::string text = record.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

json record_of(const char* kind, json results, const Facts& environment, const Stamps& stamps,
               std::string_view created) {
  json record = {{"schema", "attune-evidence"},  {"version", evidence_version}, {"kind", kind},
                 {"created", created},           {"environment", environment},  {"stamps", stamps},
                 {"results", std::move(results)}};
  record["digest"] = digest_of(record);
  return record;
}

// Bootstrap and logarithms go through libm, whose last bits differ between machines.
constexpr double relative_tolerance = 1e-9;

void compare(const json& stored, const json& recomputed, const std::string& at, std::vector<std::string>& complaints) {
  if (stored.is_number_float() || recomputed.is_number_float()) {
    if (stored.is_number() && recomputed.is_number()) {
      const double a = stored.get<double>(), b = recomputed.get<double>();
      if (std::abs(a - b) <= relative_tolerance * std::max(std::abs(a), std::abs(b))) return;
    }
  } else if (stored.is_object() && recomputed.is_object() && stored.size() == recomputed.size()) {
    for (const auto& [name, value] : recomputed.items()) {
      if (stored.contains(name))
        compare(stored.at(name), value, at + "/" + name, complaints);
      else
        complaints.push_back(
            fmt::format("{}/{}: missing; recomputed from the samples it is {}", at, name, value.dump()));
    }
    return;
  } else if (stored.is_array() && recomputed.is_array() && stored.size() == recomputed.size()) {
    for (size_t i = 0; i < stored.size(); ++i)
      compare(stored[i], recomputed[i], fmt::format("{}/{}", at, i), complaints);
    return;
  } else if (stored == recomputed) {
    return;
  }
  complaints.push_back(fmt::format("{}: the record says {}, its samples say {}", at, stored.dump(), recomputed.dump()));
}

void verify_speed(const json& record, const json& result, const std::string& at, std::vector<std::string>& complaints) {
  for (const json& subject : result.value("subjects", json::array()))
    if (!record.at("stamps").contains(subject.get<std::string>()))
      complaints.push_back(fmt::format("{}: no stamp for '{}'", at, subject.get<std::string>()));
  try {
    const Measurement measurement = measurement_from_json(result.at("measurement"));
    compare(result.at("analysis"), json::parse(to_json(analyse(measurement)).dump()), at + "/analysis", complaints);
  } catch (const Error& error) {
    complaints.push_back(fmt::format("{}/measurement: {}", at, error.what()));
  }
}

void verify_check(const json& record, const json& result, const std::string& at, std::vector<std::string>& complaints) {
  CheckResult check{.problem = result.at("problem"),
                    .subject = result.at("subject"),
                    .measured = result.at("measured"),
                    .bounds = result.at("bounds")};
  if (!record.at("stamps").contains(check.subject))
    complaints.push_back(fmt::format("{}: no stamp for '{}'", at, check.subject));
  if (check.bounds.empty()) complaints.push_back(fmt::format("{}: no bounds, so nothing was checked", at));
  for (const auto& [name, bound] : check.bounds)
    if (!check.measured.contains(name))
      complaints.push_back(fmt::format("{}: '{}' has a bound but was not measured", at, name));
  if (result.at("passed") != check.passed())
    complaints.push_back(fmt::format("{}: the record says {}, its figures say {}", at,
                                     result.at("passed").get<bool>() ? "passed" : "failed",
                                     check.passed() ? "passed" : "failed"));
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

}  // namespace

bool CheckResult::passed() const {
  if (bounds.empty()) return false;
  for (const auto& [name, bound] : bounds) {
    const auto found = measured.find(name);
    if (found == measured.end() || !(found->second <= bound)) return false;  // NaN fails
  }
  return true;
}

json speed_record(const std::vector<SpeedResult>& results, const Facts& environment, const Stamps& stamps,
                  std::string_view created) {
  json rows = json::array();
  for (const SpeedResult& row : results) {
    json entry = to_json(row.result);
    entry["problem"] = row.problem;
    if (row.flops > 0) entry["flops"] = row.flops;
    if (!row.subjects.empty()) entry["subjects"] = row.subjects;
    if (!row.checks.empty()) entry["checks"] = row.checks;
    if (!row.recorded.empty()) entry["recorded"] = row.recorded;
    rows.push_back(std::move(entry));
  }
  return record_of("speed", std::move(rows), environment, stamps, created);
}

json check_record(const std::vector<CheckResult>& results, const Facts& environment, const Stamps& stamps,
                  std::string_view created) {
  json rows = json::array();
  for (const CheckResult& row : results)
    rows.push_back({{"problem", row.problem},
                    {"subject", row.subject},
                    {"measured", row.measured},
                    {"bounds", row.bounds},
                    {"passed", row.passed()}});
  return record_of("check", std::move(rows), environment, stamps, created);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string file_name_of(const json& record) {
  std::string day;
  for (const char c : record.at("created").get<std::string>().substr(0, 10))
    if (c != '-') day += c;
  return fmt::format("{}-{}-{}.json", record.at("kind").get<std::string>(), day,
                     record.at("digest").get<std::string>().substr(0, 8));
}

std::vector<std::string> verify(const json& record) {
  std::vector<std::string> complaints = schema_violations(evidence_schema(), record);
  if (!complaints.empty()) return complaints;
  if (record.at("digest") != digest_of(record))
    complaints.push_back(
        fmt::format("/digest: the record says {}, its contents say {}: it was edited after it was "
                    "written",
                    record.at("digest").dump(), digest_of(record)));
  const bool speed = record.at("kind") == "speed";
  for (size_t i = 0; i < record.at("results").size(); ++i) {
    const json& result = record.at("results")[i];
    const std::string at = fmt::format("/results/{}", i);
    if (result.contains("measurement") != speed)
      complaints.push_back(fmt::format("{}: is no {} result", at, record.at("kind").get<std::string>()));
    else if (speed)
      verify_speed(record, result, at, complaints);
    else
      verify_check(record, result, at, complaints);
  }
  return complaints;
}

json load_record(const std::string& path) {
  const std::string text = text_of_file(path);
  // The parser would pass over the one and stop at the other.
  if (text.starts_with("\xef\xbb\xbf")) fail(ATTUNE_INVALID_ARGUMENT, "{}: begins with a byte order mark", path);
  if (text.find('\0') != std::string::npos) fail(ATTUNE_INVALID_ARGUMENT, "{}: has a NUL among its bytes", path);
  const json record = json::parse(text, nullptr, false);
  if (record.is_discarded()) fail(ATTUNE_INVALID_ARGUMENT, "{}: is not JSON", path);
  if (const auto complaints = verify(record); !complaints.empty())
    fail(ATTUNE_INVALID_ARGUMENT, "{}: does not hold:{}", path, joined(complaints));
  return record;
}

std::string save_record(const json& record, const std::string& folder) {
  if (const auto complaints = verify(record); !complaints.empty())
    fail(ATTUNE_INTERNAL_ERROR, "the record to be written does not hold:{}", joined(complaints));
  const std::filesystem::path path = std::filesystem::path(folder) / file_name_of(record);
  std::filesystem::create_directories(folder);
  write_file(path.string(), record.dump() + "\n");
  return path.string();
}

std::string_view name_of(Freshness freshness) {
  if (freshness == Freshness::fresh) return "fresh";
  return freshness == Freshness::stale ? "stale" : "unknown";
}

namespace {

template <typename Part>
Freshness compare(const json& record, const std::string& variant, const std::string& present_stamp, Part part) {
  const json& stamps = record.at("stamps");
  if (!stamps.contains(variant)) return Freshness::unknown;
  const auto recorded = stamps.at(variant).get<std::string>();
  return part(recorded) == part(present_stamp) ? Freshness::fresh : Freshness::stale;
}

}  // namespace

Freshness freshness(const json& record, const std::string& variant, const std::string& present_stamp) {
  return compare(record, variant, present_stamp, [](std::string_view stamp) { return stamp; });
}

Freshness freshness_of_time(const json& record, const std::string& variant, const std::string& present_stamp) {
  return compare(record, variant, present_stamp,
                 [](std::string_view stamp) { return stamp.substr(0, stamp.find('-')); });
}

}  // namespace attune::lab
