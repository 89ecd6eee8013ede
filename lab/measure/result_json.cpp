#include "lab/measure/result_json.hpp"

#include "core/error.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

json to_json(const stats::Interval& interval) { return json::array({interval.lower, interval.upper}); }

json to_json(const Recording& recording) {
  json seconds = json::array(), clocks = json::array();
  bool clock_known = true;
  for (const auto& round : recording.rounds) {
    json round_seconds = json::array(), round_clocks = json::array();
    for (const Sample& sample : round) {
      round_seconds.push_back(sample.seconds);
      round_clocks.push_back(sample.clock_hz);
      clock_known &= sample.clock_hz > 0;
    }
    seconds.push_back(std::move(round_seconds));
    clocks.push_back(std::move(round_clocks));
  }
  json result = {{"name", recording.name},       {"role", name_of(recording.role)}, {"remade", recording.remade},
                 {"settled", recording.settled}, {"facts", recording.facts},        {"seconds", std::move(seconds)}};
  if (clock_known) result["clock_hz"] = std::move(clocks);
  return result;
}

json to_json(const Summary& summary) {
  json result = {{"name", summary.name},
                 {"seconds", summary.seconds},
                 {"interval", to_json(summary.interval)},
                 {"relative_std", summary.relative_std},
                 {"noisy", summary.noisy}};
  if (summary.clock_hz > 0) result["clock_hz"] = summary.clock_hz;
  return result;
}

json to_json(const Comparison& comparison) {
  const stats::Verdict& verdict = comparison.verdict;
  json result = {{"name", comparison.name},
                 {"verdict", stats::name_of(verdict.outcome)},
                 {"reason", verdict.reason},
                 {"ratio", verdict.estimate},
                 {"interval", to_json(verdict.interval)},
                 {"coverage", verdict.interval.coverage},
                 {"bootstrap", to_json(comparison.bootstrap)},
                 {"sign_p", comparison.sign_p},
                 {"clocks_differ", comparison.clocks_differ},
                 {"ratios", comparison.ratios}};
  if (verdict.cycle_interval) {
    result["cycle_ratio"] = *verdict.cycle_estimate;
    result["cycle_interval"] = to_json(*verdict.cycle_interval);
  }
  return result;
}

template <typename T>
T field(const json& object, const char* name, const char* where) {
  if (!object.is_object() || !object.contains(name))
    fail(ATTUNE_INVALID_ARGUMENT, "{}: the field '{}' is missing", where, name);
  try {
    return object.at(name).get<T>();
  } catch (const json::exception& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "{}: the field '{}' is {}: {}", where, name, object.at(name).dump(), error.what());
  }
}

Protocol protocol_from_json(const json& object) {
  constexpr const char* where = "protocol";
  const int version = field<int>(object, "version", where);
  if (version != protocol_version)
    fail(ATTUNE_INVALID_ARGUMENT, "protocol: version is {}; this program knows {}", version, protocol_version);
  Protocol protocol;
  protocol.mode = field<std::string>(object, "mode", where);
  protocol.rounds = field<int>(object, "rounds", where);
  protocol.samples = field<int>(object, "samples", where);
  protocol.sample_seconds = field<double>(object, "sample_seconds", where);
  protocol.budget_seconds = field<double>(object, "budget_seconds", where);
  protocol.warm_up_batches = field<int>(object, "warm_up_batches", where);
  protocol.warm_up_agreement = field<double>(object, "warm_up_agreement", where);
  protocol.warm_up_seconds = field<double>(object, "warm_up_seconds", where);
  protocol.remake_below_seconds = field<double>(object, "remake_below_seconds", where);
  protocol.noise_bar = field<double>(object, "noise_bar", where);
  if (object.contains("quiet_cpus")) protocol.quiet_cpus = field<int>(object, "quiet_cpus", where);
  protocol.seed = field<uint64_t>(object, "seed", where);
  protocol.rule.delta = field<double>(object, "delta", where);
  protocol.rule.coverage = field<double>(object, "coverage", where);
  return protocol;
}

Recording recording_from_json(const json& object) {
  constexpr const char* where = "contender";
  using Rounds = std::vector<std::vector<double>>;
  Recording recording;
  recording.name = field<std::string>(object, "name", where);
  recording.role = role_from(field<std::string>(object, "role", where));
  recording.remade = field<bool>(object, "remade", where);
  recording.settled = field<bool>(object, "settled", where);
  recording.facts = field<Facts>(object, "facts", where);
  const auto seconds = field<Rounds>(object, "seconds", where);
  const auto clocks = object.contains("clock_hz") ? field<Rounds>(object, "clock_hz", where) : Rounds{};
  if (!clocks.empty() && clocks.size() != seconds.size())
    fail(ATTUNE_INVALID_ARGUMENT, "contender '{}': clock_hz has {} rounds, seconds {}", recording.name, clocks.size(),
         seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (!clocks.empty() && clocks[i].size() != seconds[i].size())
      fail(ATTUNE_INVALID_ARGUMENT, "contender '{}', round {}: {} clocks for {} samples", recording.name, i,
           clocks[i].size(), seconds[i].size());
    recording.rounds.emplace_back();
    for (size_t j = 0; j < seconds[i].size(); ++j)
      recording.rounds.back().push_back({seconds[i][j], clocks.empty() ? 0 : clocks[i][j]});
  }
  return recording;
}

}  // namespace

json to_json(const Protocol& protocol) {
  json result = {{"version", protocol_version},
                 {"mode", protocol.mode},
                 {"rounds", protocol.rounds},
                 {"samples", protocol.samples},
                 {"sample_seconds", protocol.sample_seconds},
                 {"budget_seconds", protocol.budget_seconds},
                 {"warm_up_batches", protocol.warm_up_batches},
                 {"warm_up_agreement", protocol.warm_up_agreement},
                 {"warm_up_seconds", protocol.warm_up_seconds},
                 {"remake_below_seconds", protocol.remake_below_seconds},
                 {"noise_bar", protocol.noise_bar},
                 {"seed", protocol.seed},
                 {"delta", protocol.rule.delta},
                 {"coverage", protocol.rule.coverage}};
  if (protocol.quiet_cpus > 0) result["quiet_cpus"] = protocol.quiet_cpus;
  return result;
}

json to_json(const Measurement& measurement) {
  json contenders = json::array();
  for (const Recording& recording : measurement.recordings) contenders.push_back(to_json(recording));
  json result = {{"protocol", to_json(measurement.protocol)},
                 {"samples_per_round", measurement.samples_per_round},
                 {"elapsed_seconds", measurement.elapsed_seconds},
                 {"contenders", std::move(contenders)}};
  if (!measurement.cpus.empty()) result["cpus"] = measurement.cpus;
  return result;
}

json to_json(const Analysis& analysis) {
  json contenders = json::array(), comparisons = json::array(), noise_floor = nullptr;
  for (const Summary& summary : analysis.summaries) contenders.push_back(to_json(summary));
  for (const Comparison& comparison : analysis.comparisons) comparisons.push_back(to_json(comparison));
  if (analysis.noise_floor) {
    noise_floor = to_json(analysis.noise_floor->comparison);
    noise_floor["fit"] = analysis.noise_floor->fit;
    noise_floor["fitness"] = analysis.noise_floor->reason;
  }
  return {{"contenders", std::move(contenders)},
          {"comparisons", std::move(comparisons)},
          {"noise_floor", std::move(noise_floor)}};
}

json to_json(const Result& result) {
  return {{"measurement", to_json(result.measurement)}, {"analysis", to_json(result.analysis)}};
}

Measurement measurement_from_json(const json& object) {
  constexpr const char* where = "measurement";
  Measurement measurement;
  measurement.protocol = protocol_from_json(field<json>(object, "protocol", where));
  measurement.samples_per_round = field<int>(object, "samples_per_round", where);
  measurement.elapsed_seconds = field<double>(object, "elapsed_seconds", where);
  if (object.contains("cpus")) measurement.cpus = field<std::vector<std::vector<int>>>(object, "cpus", where);
  for (const json& contender : field<json>(object, "contenders", where))
    measurement.recordings.push_back(recording_from_json(contender));
  return measurement;
}

Protocol protocol_with(const json& changes) {
  json fields = to_json(Protocol{});
  fields["quiet_cpus"] = Protocol{}.quiet_cpus;  // which results have only where it is above 0
  if (!changes.is_object()) fail(ATTUNE_INVALID_ARGUMENT, "protocol: {} is not an object", changes.dump());
  for (const auto& [name, value] : changes.items()) {
    if (!fields.contains(name)) fail(ATTUNE_INVALID_ARGUMENT, "protocol: there is no field '{}'", name);
    fields[name] = value;
  }
  const Protocol protocol = protocol_from_json(fields);
  check(protocol);
  return protocol;
}

}  // namespace attune::lab
