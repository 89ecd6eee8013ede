#include "lab/ladder/climb.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/sets.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

const Recording* recording_of(const LadderProblem& measured, const std::string& name) {
  const auto& all = measured.measurement.recordings;
  const auto found =
      std::ranges::find_if(all, [&](const Recording& each) { return each.name == name && each.role != Role::twin; });
  return found == all.end() ? nullptr : &*found;
}

// time(numerator) / time(denominator). Rounds of two problems were not measured together; the mean of the n-th of each
// is as independent of the next as they are.
std::optional<MeanRatio> mean_ratio(const std::vector<LadderProblem>& problems, const std::string& numerator,
                                    const std::string& denominator) {
  std::vector<std::vector<double>> ratios;
  size_t rounds = 0;
  for (const LadderProblem& each : problems) {
    const Recording* above = recording_of(each, numerator);
    const Recording* below = recording_of(each, denominator);
    if (above == nullptr || below == nullptr) continue;
    ratios.push_back(round_ratio(*above, *below, each.measurement.protocol.rule).by_round);
    rounds = ratios.size() == 1 ? ratios[0].size() : std::min(rounds, ratios.back().size());
  }
  if (rounds == 0) return std::nullopt;
  std::vector<double> means;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<double> of_round;
    for (const std::vector<double>& each : ratios) of_round.push_back(each[round]);
    means.push_back(stats::geometric_mean(of_round));
  }
  return MeanRatio{stats::median(means), stats::order_interval(means), ratios.size()};
}

// Too few rounds give no interval of the coverage that a verdict needs.
Came judged(const MeanRatio& gain, double predicted) {
  if (gain.interval.coverage < stats::default_coverage) return Came::close;
  if (gain.interval.lower >= predicted) return Came::true_;
  return gain.interval.upper < predicted ? Came::false_ : Came::close;
}

Step step_of(const Ladder& ladder, const Rung& rung, const std::string& set,
             const std::vector<LadderProblem>& problems) {
  Step step;
  step.name = rung.name;
  step.title = rung.title;
  step.over = rung.over;
  for (const LadderProblem& each : problems)
    if (recording_of(each, rung.name) != nullptr) {
      const std::vector<Summary> all = analyse(each.measurement).summaries;
      step.times.push_back(*std::ranges::find(all, rung.name, &Summary::name));
      step.problems.push_back(each.problem);
    }
  if (!rung.over.empty()) step.gain = mean_ratio(problems, rung.over, rung.name);
  if (rung.name != ladder.rungs.back().name) step.distance = mean_ratio(problems, rung.name, ladder.rungs.back().name);
  const auto prediction = std::ranges::find(rung.predictions, set, &Prediction::set);
  if (prediction != rung.predictions.end() && step.gain)
    step.outcome = PredictionOutcome{*prediction, judged(*step.gain, prediction->gain)};
  step.reported_us = rung.reported_us;
  step.reported = rung.reported;
  if (const Rung* over = ladder.find(rung.over); over != nullptr && over->reported_us && rung.reported_us)
    step.reported_gain = *over->reported_us / *rung.reported_us;
  return step;
}

}  // namespace

std::string_view name_of(Came came) {
  constexpr std::array names{"true", "false", "too close to call"};
  return names[static_cast<size_t>(came)];
}

Climb climb_of(const Ladder& ladder, const std::string& set, const std::vector<LadderProblem>& measured) {
  Climb climb;
  climb.set = set;
  std::vector<LadderProblem> problems;
  for (const std::string& text : find_set(set).problems) {
    const auto found = std::ranges::find(measured, text, &LadderProblem::problem);
    if (found != measured.end()) problems.push_back(*found);
  }
  for (const Rung& rung : ladder.rungs)
    if (Step step = step_of(ladder, rung, set, problems); !step.times.empty()) climb.steps.push_back(std::move(step));
  for (const Without& each : ladder.without)
    if (const auto ratio = mean_ratio(problems, each.name(), each.of))
      climb.losses.push_back({each.what, each.of, *ratio});
  return climb;
}

PredictionScore score_of(const std::vector<Climb>& climbs) {
  PredictionScore score;
  double sum = 0;
  for (const Climb& climb : climbs)
    for (const Step& step : climb.steps) {
      if (!step.outcome) continue;
      if (step.outcome->came == Came::close) {
        ++score.close;
        continue;
      }
      const double truth = step.outcome->came == Came::true_ ? 1 : 0,
                   missed = truth - step.outcome->prediction.probability;
      sum += missed * missed;
      ++score.scored;
      score.came_true += step.outcome->came == Came::true_;
    }
  if (score.scored > 0) score.brier = sum / static_cast<double>(score.scored);
  return score;
}

std::vector<LadderProblem> ladder_problems(const nlohmann::json& record, const std::string& file) {
  std::vector<LadderProblem> problems;
  if (record.at("kind") == "speed")
    for (const nlohmann::json& result : record.at("results"))
      problems.push_back({result.at("problem"), measurement_from_json(result.at("measurement"))});
  const std::string first = builtin_ladder().rungs.front().name;
  if (std::ranges::none_of(problems, [&](const LadderProblem& each) { return recording_of(each, first) != nullptr; }))
    fail(ATTUNE_INVALID_ARGUMENT, "{}: is no record of the ladder: {} is nowhere in it", file, first);
  return problems;
}

std::vector<std::string> predicted_sets(const Ladder& ladder) {
  std::vector<std::string> sets;
  const auto predicts = [](const Rung& rung, const std::string& set) {
    return std::ranges::find(rung.predictions, set, &Prediction::set) != rung.predictions.end();
  };
  for (const ProblemSet& set : builtin_sets())
    if (std::ranges::any_of(ladder.rungs, [&](const Rung& rung) { return predicts(rung, set.name); }))
      sets.push_back(set.name);
  return sets;
}

}  // namespace attune::lab
