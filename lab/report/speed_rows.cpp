#include "lab/report/speed_rows.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

// Dense 16-bit FLOPs per SM and clock.
constexpr double hopper_tensor_flops = 4096;

stats::Outcome of_the_other_side(stats::Outcome outcome) {
  if (outcome == stats::Outcome::faster) return stats::Outcome::slower;
  return outcome == stats::Outcome::slower ? stats::Outcome::faster : outcome;
}

Against against(std::string peer, double seconds, std::vector<double> ratios, const stats::VerdictRule& rule) {
  const stats::Verdict verdict = stats::judge(ratios, {}, rule);
  return {.peer = std::move(peer),
          .backend = "",
          .seconds = seconds,
          .ratios = std::move(ratios),
          .estimate = verdict.estimate,
          .interval = verdict.interval,
          .outcome = of_the_other_side(verdict.outcome)};
}

bool is_attunes(const Recording& recording) { return recording.facts.contains("kernel"); }

std::vector<double> divided(const std::vector<double>& numerators, const std::vector<double>& denominators) {
  std::vector<double> ratios = numerators;
  for (size_t i = 0; i < ratios.size(); ++i) ratios[i] /= denominators[i];
  return ratios;
}

void add_recorded(SpeedRow& row, const json& result, const stats::VerdictRule& rule) {
  const Against* cudnn = row.find("cudnn");
  if (cudnn == nullptr || !result.contains("recorded")) return;
  std::vector<Against> derived;
  for (const auto& [peer, speed] : result.at("recorded").items()) {
    if (row.find(peer) != nullptr) continue;  // it is here itself
    const double over_cudnn = speed.at(0);
    std::vector<double> ratios = cudnn->ratios;
    for (double& ratio : ratios) ratio /= over_cudnn;
    derived.push_back(against(peer, cudnn->seconds / over_cudnn, std::move(ratios), rule));
    derived.back().derived = true;
  }
  row.peers.insert(row.peers.end(), derived.begin(), derived.end());
}

std::vector<double> tensor_shares(const Recording& recording, const json& environment, double flops) {
  const std::string arch = environment.value("architecture", "");
  const std::vector<double> cycles = round_cycles(recording);
  if (cycles.empty() || flops <= 0 || arch != "sm_90a" || !environment.contains("sm_count")) return {};
  const double sm_count = std::stod(environment.at("sm_count").get<std::string>());
  std::vector<double> shares;
  for (const double count : cycles) shares.push_back(flops / (count * sm_count * hopper_tensor_flops));
  return shares;
}

// The rows of one problem of a record.
void add_rows(std::vector<SpeedRow>& rows, const json& result, const json& environment) {
  const Measurement measurement = measurement_from_json(result.at("measurement"));
  const Analysis analysis = analyse(measurement);
  for (size_t i = 0; i < measurement.recordings.size(); ++i) {
    const Recording& ours = measurement.recordings[i];
    if (ours.role == Role::twin || !is_attunes(ours)) continue;
    SpeedRow row;
    row.problem = result.at("problem");
    row.contender = ours.name;
    row.kernel = ours.facts.at("kernel");
    row.mode = measurement.protocol.mode;
    const auto edges = ours.facts.find("programmatic_edges");
    row.overlaps = edges != ours.facts.end() && edges->second != "0";
    if (result.contains("subjects")) row.subjects = result.at("subjects").get<std::vector<std::string>>();
    row.flops = result.value("flops", 0.0);
    row.ours = analysis.summaries[i];
    row.tensor_shares = tensor_shares(ours, environment, row.flops);
    for (size_t j = 0; j < measurement.recordings.size(); ++j) {
      const Recording& peer = measurement.recordings[j];
      if (peer.role == Role::twin || is_attunes(peer)) continue;
      row.peers.push_back(against(peer.name, analysis.summaries[j].seconds,
                                  divided(round_seconds(peer), round_seconds(ours)), measurement.protocol.rule));
      row.peers.back().clock_hz = analysis.summaries[j].clock_hz;
      if (const auto backend = peer.facts.find("backend"); backend != peer.facts.end())
        row.peers.back().backend = backend->second;
    }
    add_recorded(row, result, measurement.protocol.rule);
    if (analysis.noise_floor) {
      row.fit = analysis.noise_floor->fit;
      row.noise = analysis.noise_floor->reason;
    }
    rows.push_back(std::move(row));
  }
}

}  // namespace

const Against* SpeedRow::fastest() const {
  const auto least = std::ranges::min_element(peers, {}, &Against::seconds);
  return least == peers.end() ? nullptr : &*least;
}

const Against* SpeedRow::find(std::string_view peer) const {
  const auto found = std::ranges::find(peers, peer, &Against::peer);
  return found == peers.end() ? nullptr : &*found;
}

std::vector<SpeedRow> speed_rows(const json& record) {
  std::vector<SpeedRow> rows;
  for (const json& result : record.at("results")) add_rows(rows, result, record.at("environment"));
  return rows;
}

std::vector<SpeedRow> speed_rows(const json& record, const std::vector<std::string>& problems) {
  std::vector<SpeedRow> rows;
  for (const json& result : record.at("results"))
    if (std::ranges::find(problems, result.at("problem").get<std::string>()) != problems.end())
      add_rows(rows, result, record.at("environment"));
  return rows;
}

}  // namespace attune::lab
