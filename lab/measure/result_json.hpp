// Results as JSON: all that was measured, every sample included, and what was concluded. docs/measuring.md lists the
// fields. A measurement can be read back; an analysis is only ever recomputed from it.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/measure/analysis.hpp"

namespace attune::lab {

nlohmann::json to_json(const Protocol& protocol);
nlohmann::json to_json(const Measurement& measurement);
nlohmann::json to_json(const Analysis& analysis);
nlohmann::json to_json(const Result& result);

// Throws ATTUNE_INVALID_ARGUMENT naming the field that is missing or wrong, or the protocol version it does not know.
Measurement measurement_from_json(const nlohmann::json& json);

// The default protocol with the fields given in `changes` (an object) in place of its own; refuses unknown ones.
Protocol protocol_with(const nlohmann::json& changes);

}  // namespace attune::lab
