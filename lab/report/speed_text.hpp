// Speed rows and bars as tables for people and as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/report/bars.hpp"
#include "lab/report/speed_rows.hpp"
#include "lab/text.hpp"

namespace attune::lab {

// Problem, kernel, time, TFLOP/s, the ratio to each peer that any of the rows has, the ratio to the fastest, verdict.
Table speed_table(const std::vector<SpeedRow>& rows);

// The same problems measured in several ways, a column of times each. Where a problem has no row there is a dash, and
// where a row of mode pdl has nothing that overlaps, "in order".
struct ModeColumn {
  std::string title;
  std::vector<const SpeedRow*> rows;  // one per problem; may be null
};
Table modes_table(const std::vector<std::string>& problems, const std::vector<ModeColumn>& columns);

// Each bar with what was reached and whether it is met.
Table bars_table(const std::vector<BarResult>& results);

// "1.234 [1.230, 1.241]"
std::string ratio_text(double estimate, const stats::Interval& interval);

nlohmann::json to_json(const SpeedRow& row);
nlohmann::json to_json(const BarResult& result);

}  // namespace attune::lab
