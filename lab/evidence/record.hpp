// Evidence: a measured result with its samples, its machine and the stamps of the code it speaks for.
//
// A record is only worth what can be recomputed from it. Verification checks the shape (schema.hpp), the digest, and
// derives every figure and verdict again from the raw samples.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lab/measure/analysis.hpp"

namespace attune::lab {

constexpr int evidence_version = 1;

// Kernel variant -> hash of the code that was run (docs/measuring.md says what it covers).
using Stamps = std::map<std::string, std::string>;

struct SpeedResult {
  std::string problem;
  Result result;
  double flops = 0;                        // useful ones; 0: not known
  std::vector<std::string> subjects = {};  // the kernel variants that Attune ran; keys of the record's stamps
  // What the check before the timing measured, by contender.
  std::map<std::string, std::map<std::string, double>> checks = {};
  // Peer -> its speed over cuDNN's as recorded elsewhere: estimate and interval.
  std::map<std::string, std::array<double, 3>> recorded = {};
};

struct CheckResult {
  std::string problem;
  std::string subject;                     // the kernel variant; a key of the record's stamps
  std::map<std::string, double> measured;  // error figures
  std::map<std::string, double> bounds;    // the most each may be; every bound needs its figure
  bool passed() const;
};

nlohmann::json speed_record(const std::vector<SpeedResult>& results, const Facts& environment, const Stamps& stamps,
                            std::string_view created);
nlohmann::json check_record(const std::vector<CheckResult>& results, const Facts& environment, const Stamps& stamps,
                            std::string_view created);

// Now, in UTC: what `created` holds.
std::string utc_now();

// speed-20261115-1a2b3c4d.json: kind, day and the head of the digest.
std::string file_name_of(const nlohmann::json& record);

// What is wrong with a record, one line each; empty when everything it says follows from what it holds.
std::vector<std::string> verify(const nlohmann::json& record);

// Reads, verifies, and throws ATTUNE_INVALID_ARGUMENT with every complaint when the record does not hold.
nlohmann::json load_record(const std::string& path);
// Refuses to write a record that does not hold. Returns the path written.
std::string save_record(const nlohmann::json& record, const std::string& folder);

enum class Freshness { fresh, stale, unknown };  // unknown: the record does not speak of that variant
std::string_view name_of(Freshness freshness);
Freshness freshness(const nlohmann::json& record, const std::string& variant, const std::string& present_stamp);
// Of a time: it speaks for what the GPU ran, so the part of the stamp that is of the machine code decides.
Freshness freshness_of_time(const nlohmann::json& record, const std::string& variant, const std::string& present_stamp);

}  // namespace attune::lab
