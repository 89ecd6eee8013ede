// A speed record as rows of a table: Attune's time for a problem, and how it stands to every peer of the same rounds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/measure/analysis.hpp"

namespace attune::lab {

// A peer of a row. Its ratios are time(peer) / time(Attune) inside rounds: above 1 Attune is faster.
struct Against {
  std::string peer;
  std::string backend;   // of torch's SDPA that did it; "" where that is not known
  bool derived = false;  // not measured: cuDNN's time of this run, by a ratio recorded elsewhere
  double seconds = 0;
  double clock_hz = 0;  // 0: not known
  std::vector<double> ratios;
  double estimate = 0;                               // median of the ratios
  stats::Interval interval;                          // exact
  stats::Outcome outcome = stats::Outcome::unclear;  // said of Attune
};

struct SpeedRow {
  std::string problem, contender, kernel;
  std::string mode;                   // of the protocol: steady, cold, pdl, ...
  bool overlaps = false;              // launches of the graph may start before the one ahead has ended
  std::vector<std::string> subjects;  // the kernel variants that ran; keys of the record's stamps
  double flops = 0;                   // useful ones; 0: not known
  Summary ours;
  std::vector<Against> peers;
  std::vector<double> tensor_shares;  // by round, of what Hopper's tensor cores could do; empty: not known
  bool fit = true;
  std::string noise;  // what the A/A contender said

  const Against* fastest() const;  // nullptr without peers
  const Against* find(std::string_view peer) const;
};

// Rows of every kernel of Attune in the record, in its order; problems at which none was timed have no row.
std::vector<SpeedRow> speed_rows(const nlohmann::json& record);
// Those of these problems alone.
std::vector<SpeedRow> speed_rows(const nlohmann::json& record, const std::vector<std::string>& problems);

}  // namespace attune::lab
