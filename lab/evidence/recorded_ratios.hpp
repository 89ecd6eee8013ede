// Ratios that were recorded elsewhere, for a peer that is not here today: lines of JSON, one per problem, with B, H, S,
// D, causal, dt and speed_vs_cudnn, an object of peer -> [estimate, lower, upper].
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

  // Peers of the recording that are no SDPA backend of torch (those can be measured), with their speed over cuDNN's.
  std::map<std::string, std::array<double, 3>> of(const std::string& problem) const;

 private:
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, std::string>;  // B, H, S, D, causal, dtype
  std::map<Key, std::map<std::string, std::array<double, 3>>> ratios_;
};

}  // namespace attune::lab
