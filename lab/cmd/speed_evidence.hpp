// The record of a bench run: what was measured, with the stamps of the code that ran.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/evidence/record.hpp"

namespace attune::lab {

// `kernel`: the one that was forced, or "". Where the code cannot be stamped the record has no stamps, and no document
// will show it: minutes of measurement are not thrown away for it. null without results. `others`: stamps of code that
// is no kernel of this library.
nlohmann::json stamped_speed_record(std::vector<SpeedResult> results, const std::string& kernel,
                                    const Facts& environment, const Stamps& others = {});

}  // namespace attune::lab
