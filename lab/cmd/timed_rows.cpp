#include "lab/cmd/timed_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"

namespace attune::lab {
namespace {

// Microseconds, by round.
nlohmann::json samples_json(const std::vector<std::vector<Sample>>& rounds) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& round : rounds) {
    nlohmann::json samples = nlohmann::json::array();
    for (const Sample& sample : round) samples.push_back(sample.seconds * 1e6);
    json.push_back(std::move(samples));
  }
  return json;
}

std::string label_of(const Entrant& entrant) { return entrant.name.empty() ? entrant.plugin : entrant.name; }

// A ceiling with what its probe measured in the same rounds; the share follows from it.
nlohmann::json probe_json(const TimedProblem& timed, const Share& share) {
  nlohmann::json json = share_json(share);
  const auto& recordings = timed.result.measurement.recordings;
  json["contender"] = share.probe;
  json["work"] = timed.probe_work.at(share.probe);
  json["samples"] = samples_json(std::ranges::find(recordings, share.probe, &Recording::name)->rounds);
  return json;
}

}  // namespace

std::map<std::string, double> figures_of(const Judgement& judgement) {
  return {{"rel_rms", judgement.rel_rms}, {"rel_rms_bound", judgement.rel_rms_bound},
          {"max_ulp", judgement.max_ulp}, {"max_ulp_bound", judgement.max_ulp_bound},
          {"lse_err", judgement.lse_err}, {"lse_bound", judgement.lse_bound}};
}

nlohmann::json to_json(const TimedProblem& timed, const TimedEntrant& entrant) {
  nlohmann::json json = lab::to_json(entrant.check);
  json["problem"] = timed.problem;
  json["contender"] = entrant.name;
  json["us"] = entrant.summary.seconds * 1e6;
  json["lo"] = entrant.summary.interval.lower * 1e6;
  json["hi"] = entrant.summary.interval.upper * 1e6;
  json["gflops"] = timed.flops / entrant.summary.seconds / 1e9;
  json.update(share_json(entrant.share()));
  json["relative_std"] = entrant.summary.relative_std;
  json["samples"] = samples_json(entrant.rounds);
  if (entrant.threads > 0) {
    json["threads"] = entrant.threads;
    json["probes"] = nlohmann::json::array();
    for (const Share& share : entrant.shares) json["probes"].push_back(probe_json(timed, share));
    if (const auto& cpus = timed.result.measurement.cpus; !cpus.empty()) json["cpus"] = cpus;
  }
  if (const auto& over = entrant.over_first_count) {
    json["speedup_over_threads"] = over->threads;
    json["speedup"] = over->ratio.estimate;
    json["speedup_lo"] = over->ratio.interval.lower;
    json["speedup_hi"] = over->ratio.interval.upper;
    json["speedup_of_quickest"] = over->ratio.of_quickest;
  }
  if (entrant.against_first) {
    const stats::Verdict& verdict = entrant.against_first->verdict;
    json["ratio"] = verdict.estimate;
    json["ratio_lo"] = verdict.interval.lower;
    json["ratio_hi"] = verdict.interval.upper;
    json["verdict"] = stats::name_of(verdict.outcome);
    json["verdict_reason"] = verdict.reason;
  }
  if (!entrant.alarm.empty()) json["alarm"] = entrant.alarm;
  if (timed.noise_floor) {
    json["fit"] = timed.noise_floor->fit;
    json["noise"] = timed.noise_floor->reason;
  }
  return json;
}

nlohmann::json to_json(const std::string& problem, const NotTimed& absent) {
  nlohmann::json json = lab::to_json(absent.check);
  json["problem"] = problem;
  json["contender"] = label_of(absent.entrant);
  json["ok"] = false;
  json["supported"] = absent.kind != NotTimed::Kind::refused;
  json["not_timed"] = name_of(absent.kind);
  json["failure"] = absent.why;
  return json;
}

std::string text_of(const std::string& problem, const NotTimed& absent) {
  const std::string who = label_of(absent.entrant);
  if (absent.kind == NotTimed::Kind::refused) return fmt::format("refused: {}: {}: {}\n", who, problem, absent.why);
  if (absent.kind == NotTimed::Kind::lost)
    return fmt::format("not timed: {}: {}: {}\n      {}\n", who, problem, absent.why, reproducer(absent.check.of));
  return fmt::format("not timed, because it is wrong: {}\n{}", who, failure_text(absent.check, absent.check.of));
}

void RunStatus::note(const NotTimed& absent) { (absent.kind == NotTimed::Kind::refused ? refused_ : failed_) = true; }

void RunStatus::note(const TimedEntrant& entrant) { unclear_ |= entrant.drowned || !entrant.alarm.empty(); }

int RunStatus::exit_status() const {
  if (failed_) return exit_failed_check;
  if (refused_) return exit_unsupported;
  return unclear_ ? exit_unclear : exit_ok;
}

std::vector<CpuRow> cpu_rows_of(const TimedProblem& timed, size_t thread_counts) {
  std::vector<CpuRow> rows;
  for (size_t i = 0; i < std::min(timed.entrants.size(), thread_counts); ++i) {
    const TimedEntrant& entrant = timed.entrants[i];
    if (entrant.kernel.empty()) continue;  // bars are for kernels of this library
    CpuRow& row = rows.emplace_back(CpuRow{timed.problem, entrant.kernel, entrant.threads, timed.flops, {}, {}, {}});
    Recording recording;
    recording.rounds = entrant.rounds;
    row.seconds = {entrant.summary.seconds, stats::order_interval(round_seconds(recording)),
                   quickest_seconds(recording)};
    for (const Share& share : entrant.shares)
      row.shares[share.ceiling] = {share.estimate, share.rounds->interval, share.rounds->of_quickest};
    if (const auto& over = entrant.over_first_count)
      row.speedups[over->threads] = {over->ratio.estimate, over->ratio.interval, over->ratio.of_quickest};
  }
  return rows;
}

}  // namespace attune::lab
