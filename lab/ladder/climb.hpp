// From measurements of the ladder to statements: what each rung gained, what it costs to take something away again, and
// whether what was predicted came true. Pure functions of samples: a record gives the same as the run that wrote it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/ladder/ladder.hpp"
#include "lab/measure/analysis.hpp"

namespace attune::lab {

// One problem, at which everyone who passed the check was measured in the same rounds.
struct LadderProblem {
  std::string problem;
  Measurement measurement;
};

// A geometric mean over the problems of a set. Its interval is exact, over rounds.
struct MeanRatio {
  double estimate = 0;
  stats::Interval interval;
  size_t problems = 0;
};

enum class Came { true_, false_, close };  // close: the interval holds the predicted gain
std::string_view name_of(Came came);

struct PredictionOutcome {
  Prediction prediction;
  Came came = Came::close;
};

// A rung at a set of problems.
struct Step {
  std::string name, title, over;
  std::vector<Summary> times;         // one per problem at which it was timed
  std::vector<std::string> problems;  // theirs
  std::optional<MeanRatio> gain;      // time of `over` over its own; none where they share no problem
  std::optional<MeanRatio> distance;  // its time over the library's
  std::optional<PredictionOutcome> outcome;
  std::optional<double> reported_us, reported_gain;
  std::string reported;
};

// A rung without something, over the rung as it is.
struct Loss {
  std::string what, of;
  MeanRatio ratio;
};

struct Climb {
  std::string set;
  std::vector<Step> steps;
  std::vector<Loss> losses;
};
// The set's problems among those measured, every rung that was timed at one of them.
Climb climb_of(const Ladder& ladder, const std::string& set, const std::vector<LadderProblem>& measured);

// Brier's score: the mean square of what the probabilities missed. 0 is perfect, 0.25 is what "50 %" always gets.
// Predictions too close to call are left out.
struct PredictionScore {
  double brier = 0;
  size_t scored = 0, close = 0, came_true = 0;
};
PredictionScore score_of(const std::vector<Climb>& climbs);

// Of a record of speed that `attune ladder --evidence` wrote. Throws ATTUNE_INVALID_ARGUMENT for another one.
std::vector<LadderProblem> ladder_problems(const nlohmann::json& record, const std::string& file);

// The sets that predictions speak of, in the order of builtin_sets().
std::vector<std::string> predicted_sets(const Ladder& ladder);

}  // namespace attune::lab
