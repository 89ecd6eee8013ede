// Speed records of a machine without noise, for tests of what is made of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/evidence/record.hpp"

namespace attune::lab {

// Every round of a contender takes `seconds`, but for the last, which takes 1 % longer.
inline Recording steady_recording(const std::string& name, Role role, double seconds, double clock_hz, int rounds) {
  Recording recording;
  recording.name = name;
  recording.role = role;
  if (name == "attune") recording.facts["kernel"] = "sm90/fwd";
  for (int i = 0; i < rounds; ++i) recording.rounds.push_back({{seconds * (i + 1 == rounds ? 1.01 : 1), clock_hz}});
  return recording;
}

// The first of the times is the baseline's.
inline SpeedResult steady_result(const std::string& problem, const std::vector<std::pair<std::string, double>>& seconds,
                                 double clock_hz = 1.6e9) {
  SpeedResult result;
  result.problem = problem;
  Measurement& measurement = result.result.measurement;
  measurement.samples_per_round = 1;
  for (const auto& [name, time] : seconds) {
    const Role role = measurement.recordings.empty() ? Role::baseline : Role::contender;
    measurement.recordings.push_back(steady_recording(name, role, time, clock_hz, measurement.protocol.rounds));
  }
  result.result.analysis = analyse(measurement);
  result.flops = 1e11;
  return result;
}

inline nlohmann::json record_of(const std::vector<SpeedResult>& results) {
  return speed_record(results, {{"architecture", "sm_90a"}, {"sm_count", "132"}, {"card", "NVIDIA H200"}}, {},
                      "2026-11-15T12:00:00Z");
}

}  // namespace attune::lab
