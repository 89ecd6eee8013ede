#include "lab/report/repeatability.hpp"

#include <algorithm>

namespace attune::lab {
namespace {

constexpr double most_moves = 0.05;

}  // namespace

bool Repeat::flipped() const {
  using enum stats::Outcome;
  return (first == faster && second == slower) || (first == slower && second == faster);
}

bool Repeat::became_clear_or_unclear() const {
  return (first == stats::Outcome::unclear) != (second == stats::Outcome::unclear);
}

int Repeatability::flips() const { return static_cast<int>(std::ranges::count_if(repeats, &Repeat::flipped)); }

int Repeatability::moves() const {
  return static_cast<int>(std::ranges::count_if(repeats, &Repeat::became_clear_or_unclear));
}

bool Repeatability::holds() const {
  return !repeats.empty() && flips() == 0 && moves() <= most_moves * static_cast<double>(repeats.size());
}

Repeatability compare_runs(const std::vector<SpeedRow>& first, const std::vector<SpeedRow>& second) {
  Repeatability result;
  for (const SpeedRow& row : first) {
    const auto again = std::ranges::find_if(second, [&](const SpeedRow& other) {
      return other.problem == row.problem && other.contender == row.contender;
    });
    if (again == second.end()) continue;
    for (const Against& peer : row.peers) {
      const Against* other = again->find(peer.peer);
      if (peer.derived || other == nullptr || other->derived) continue;
      result.repeats.push_back({row.problem, peer.peer, peer.estimate, other->estimate, peer.outcome, other->outcome});
    }
  }
  return result;
}

}  // namespace attune::lab
