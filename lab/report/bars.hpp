// The bars of lab/bars.toml for GPUs: what speed Attune sets out to reach, on which problems, against whom; and what a
// table of measured rows says about each. Those for CPUs: lab/report/cpu_bars.hpp.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/speed_rows.hpp"
#include "lab/stats/table.hpp"

namespace attune::lab {

// Which problems a bar speaks of.
struct BarCoverage {
  std::string name, set;
  std::vector<std::string> words, without;
  int64_t shortest = 0, longest = std::numeric_limits<int64_t>::max();

  // Those of its set.
  std::vector<std::string> problems() const;
};

struct Bar : BarCoverage {
  std::vector<std::string> against;  // peers without whom nothing is said; "any": whoever can express the call
  std::optional<double> mean, floor, stretch, tensor_share;
};

// Throws ATTUNE_INVALID_ARGUMENT naming the bar and the key that is missing, wrong or not known.
std::vector<Bar> bars_from(std::string_view toml);
// lab/bars.toml, as compiled into this program.
const std::vector<Bar>& bars();

// incomplete: a problem or a peer it needs was not measured. inapplicable: it speaks of another kernel or number of
// threads (lab/report/cpu_bars.hpp).
enum class BarState { met, missed, incomplete, inapplicable };
std::string_view name_of(BarState state);

struct BarResult {
  Bar bar;
  BarState state = BarState::incomplete;
  std::string why;                        // one clause; what is missing, or what fell short
  std::vector<const SpeedRow*> rows;      // of the table given
  std::optional<stats::TableRatio> mean;  // of the speed-ups over the fastest peer, or of the tensor share
  const SpeedRow* lowest = nullptr;       // the row with the smallest speed-up
};

// One for each bar that speaks of at least one of the rows. The rows must outlive them.
std::vector<BarResult> compare_with_bars(const std::vector<SpeedRow>& rows, const std::vector<Bar>& bars);

}  // namespace attune::lab
