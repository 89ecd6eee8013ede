// A stored baseline: what a build took, as JSON, to be compared with later builds on the same kind of machine. It holds
// one value per round, so that whoever reads it can form the intervals again.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "lab/guard/judge.hpp"

namespace attune::lab {

constexpr int baseline_version = 1;

struct Baseline {
  std::string created;                      // UTC
  std::string mode;                         // of the protocol
  Facts environment;                        // of the machine
  std::map<std::string, RoundValues> rows;  // by problem
};

nlohmann::json to_json(const Baseline& baseline);

// `name` begins the errors. Throws ATTUNE_INVALID_ARGUMENT for another schema or version, for fields that are missing,
// and for medians that do not follow from the rounds.
Baseline baseline_from_json(const nlohmann::json& json, const std::string& name);

Baseline load_baseline(const std::string& path);
// Written beside and renamed: a baseline that was there stays until the new one is whole.
void save_baseline(const Baseline& baseline, const std::string& path);

// Why a baseline cannot be held against what is measured here and now, or "". Times of another card, of another
// processor or of another mode say nothing.
std::string incomparable(const Baseline& baseline, const Facts& environment, const std::string& mode);

}  // namespace attune::lab
