// The shape of an evidence file, as a JSON Schema that this program also executes. `attune evidence --schema` prints
// it.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace attune::lab {

const nlohmann::json& evidence_schema();

// Where and how `value` departs from `schema`, one line each, beginning with a JSON pointer; empty when it conforms.
// Knows the words the evidence schema uses: type, const, enum, required, properties, additionalProperties, items,
// minItems, minimum, exclusiveMinimum, oneOf, $ref into $defs. A schema with any other word is refused.
std::vector<std::string> schema_violations(const nlohmann::json& schema, const nlohmann::json& value);

}  // namespace attune::lab
