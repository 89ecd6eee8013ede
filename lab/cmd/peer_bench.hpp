// attune bench --peers from end to end: the host is started, and what it measured becomes a record, a table and a
// comparison with the bars.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/cmd/peers.hpp"
#include "lab/evidence/record.hpp"
#include "lab/evidence/recorded_ratios.hpp"
#include "lab/report/speed_rows.hpp"
#include "lab/trial/child.hpp"

namespace attune::lab {

struct PeerBench {
  PeerOptions options;
  std::vector<std::string> problems, kernels, plugins;
  Protocol protocol;
  TrialOptions trials;  // of the plug-ins
  std::optional<double> price_per_hour;
  bool json = false;
};

// Returns the exit status.
int bench_with_peers(PeerBench bench);

// What the run will take, in seconds, from the first problem to the table.
double predicted_seconds(const PeerBench& bench);

// What the host measured, as results of a record; problems at which nothing was timed have none.
std::vector<SpeedResult> results_of(const HostLines& lines, const RecordedRatios& recorded);

// How far the ratios of peers that were measured, flash to cuDNN, lie from those recorded elsewhere: whether this
// machine and those recordings speak of the same thing. "" where nothing can be compared.
std::string agreement_with(const RecordedRatios& recorded, const std::vector<SpeedRow>& rows);

// Who was wrong, absent, failed or disturbed, a line each.
std::vector<std::string> remarks_on(const HostLines& lines);

}  // namespace attune::lab
