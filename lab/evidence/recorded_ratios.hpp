// Ratios that were recorded elsewhere, for a peer that is not here today: lines of JSON, one per problem, with B, H, S,
// D, causal, dt and speed_vs_cudnn, an object of peer -> [estimate, lower, upper]. Those of gradients have the tag
// "bwd"; without dt they are in bf16.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>

namespace attune::lab {

class RecordedRatios {
 public:
  RecordedRatios() = default;
  // Throws ATTUNE_INVALID_ARGUMENT naming the line that is no recorded ratio.
  static RecordedRatios from_file(const std::string& path);

  // Speeds over cuDNN's: of the peers that need not be here, and of SDPA's backends, which are and can be compared
  // (named as peers are: "flash").
  using Speeds = std::map<std::string, std::array<double, 3>>;
  Speeds of(const std::string& problem) const { return found(ratios_, problem); }
  Speeds measurable(const std::string& problem) const { return found(measurable_, problem); }

 private:
  // Operation, B, H, S, D, causal, dtype
  using Key = std::tuple<std::string, int64_t, int64_t, int64_t, int64_t, bool, std::string>;
  using Ratios = std::map<Key, Speeds>;
  static Speeds found(const Ratios& ratios, const std::string& problem);

  Ratios ratios_, measurable_;
};

}  // namespace attune::lab
