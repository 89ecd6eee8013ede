#include "lab/evidence/schema.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;

constexpr const char* schema_text = R"json({
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Attune evidence",
  "description": "A measured result with its samples and the stamps of the kernels it speaks for.",
  "type": "object",
  "required": ["schema", "version", "kind", "created", "environment", "stamps", "results", "digest"],
  "additionalProperties": false,
  "properties": {
    "schema": {"const": "attune-evidence"},
    "version": {"const": 1},
    "kind": {"enum": ["speed", "check"]},
    "created": {"type": "string", "description": "UTC, ISO 8601"},
    "environment": {"$ref": "#/$defs/facts"},
    "stamps": {"$ref": "#/$defs/facts", "description": "kernel variant -> hash of the code that was run"},
    "results": {"type": "array", "minItems": 1,
                "items": {"oneOf": [{"$ref": "#/$defs/speed"}, {"$ref": "#/$defs/check"}]}},
    "digest": {"type": "string", "description": "xxh3-128 of the record without this field, as compact JSON, keys sorted"}
  },
  "$defs": {
    "facts": {"type": "object", "additionalProperties": {"type": "string"}},
    "interval": {"type": "array", "minItems": 2, "items": {"type": "number"}},
    "check": {
      "type": "object",
      "required": ["problem", "subject", "measured", "bounds", "passed"],
      "additionalProperties": false,
      "properties": {
        "problem": {"type": "string"},
        "subject": {"type": "string", "description": "the kernel variant; a key of stamps"},
        "measured": {"type": "object", "additionalProperties": {"type": "number"}},
        "bounds": {"type": "object", "additionalProperties": {"type": "number"}},
        "passed": {"type": "boolean"}
      }
    },
    "speed": {
      "type": "object",
      "required": ["problem", "measurement", "analysis"],
      "additionalProperties": false,
      "properties": {
        "problem": {"type": "string"},
        "flops": {"type": "number", "exclusiveMinimum": 0, "description": "useful ones of a call"},
        "subjects": {"type": "array", "minItems": 1, "items": {"type": "string"},
                     "description": "the kernel variants that Attune ran; keys of stamps"},
        "checks": {"type": "object", "description": "what the check before the timing measured, by contender",
                   "additionalProperties": {"type": "object", "additionalProperties": {"type": "number"}}},
        "recorded": {"type": "object", "additionalProperties": {"$ref": "#/$defs/interval"},
                     "description": "peer -> its speed over cuDNN's recorded elsewhere: estimate, lower, upper"},
        "measurement": {
          "type": "object",
          "required": ["protocol", "samples_per_round", "elapsed_seconds", "contenders"],
          "additionalProperties": false,
          "properties": {
            "protocol": {
              "type": "object",
              "required": ["version", "mode", "rounds", "samples", "sample_seconds", "budget_seconds",
                           "warm_up_batches", "warm_up_agreement", "warm_up_seconds", "remake_below_seconds",
                           "noise_bar", "seed", "delta", "coverage"],
              "additionalProperties": false,
              "properties": {
                "version": {"const": 1},
                "mode": {"enum": ["cpu", "steady", "cold", "pdl", "host"]},
                "rounds": {"type": "integer", "minimum": 1},
                "samples": {"type": "integer", "minimum": 1},
                "sample_seconds": {"type": "number", "exclusiveMinimum": 0},
                "budget_seconds": {"type": "number", "minimum": 0},
                "warm_up_batches": {"type": "integer", "minimum": 2},
                "warm_up_agreement": {"type": "number", "exclusiveMinimum": 0},
                "warm_up_seconds": {"type": "number", "minimum": 0},
                "remake_below_seconds": {"type": "number", "minimum": 0},
                "noise_bar": {"type": "number", "exclusiveMinimum": 0},
                "quiet_cpus": {"type": "integer", "minimum": 1},
                "seed": {"type": "integer", "minimum": 0},
                "delta": {"type": "number", "exclusiveMinimum": 0},
                "coverage": {"type": "number", "exclusiveMinimum": 0}
              }
            },
            "samples_per_round": {"type": "integer", "minimum": 1},
            "elapsed_seconds": {"type": "number", "minimum": 0},
            "cpus": {"type": "array", "minItems": 1, "description": "that were quiet, [round][CPU]",
                     "items": {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}},
            "contenders": {
              "type": "array", "minItems": 1,
              "items": {
                "type": "object",
                "required": ["name", "role", "remade", "settled", "facts", "seconds"],
                "additionalProperties": false,
                "properties": {
                  "name": {"type": "string"},
                  "role": {"enum": ["baseline", "twin", "contender"]},
                  "remade": {"type": "boolean"},
                  "settled": {"type": "boolean"},
                  "facts": {"$ref": "#/$defs/facts"},
                  "seconds": {"$ref": "#/$defs/rounds", "description": "per call, [round][sample]"},
                  "clock_hz": {"$ref": "#/$defs/rounds"}
                }
              }
            }
          }
        },
        "analysis": {
          "type": "object",
          "required": ["contenders", "comparisons", "noise_floor"],
          "additionalProperties": false,
          "properties": {
            "contenders": {
              "type": "array", "minItems": 1,
              "items": {
                "type": "object",
                "required": ["name", "seconds", "interval", "relative_std", "noisy"],
                "additionalProperties": false,
                "properties": {
                  "name": {"type": "string"},
                  "seconds": {"type": "number", "exclusiveMinimum": 0},
                  "interval": {"$ref": "#/$defs/interval"},
                  "relative_std": {"type": "number", "minimum": 0},
                  "noisy": {"type": "boolean"},
                  "clock_hz": {"type": "number", "exclusiveMinimum": 0}
                }
              }
            },
            "comparisons": {"type": "array", "items": {"$ref": "#/$defs/comparison"}},
            "noise_floor": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/comparison"}]}
          }
        }
      }
    },
    "rounds": {"type": "array", "minItems": 1,
               "items": {"type": "array", "minItems": 1, "items": {"type": "number", "exclusiveMinimum": 0}}},
    "comparison": {
      "type": "object",
      "required": ["name", "verdict", "reason", "ratio", "interval", "coverage", "bootstrap", "sign_p",
                   "clocks_differ", "ratios"],
      "additionalProperties": false,
      "properties": {
        "name": {"type": "string"},
        "verdict": {"enum": ["faster", "slower", "same", "unclear"]},
        "reason": {"type": "string"},
        "ratio": {"type": "number", "exclusiveMinimum": 0, "description": "time of this one over time of the baseline"},
        "interval": {"$ref": "#/$defs/interval", "description": "exact, of the median of the round ratios"},
        "coverage": {"type": "number"},
        "bootstrap": {"$ref": "#/$defs/interval"},
        "sign_p": {"type": "number"},
        "clocks_differ": {"type": "boolean"},
        "ratios": {"type": "array", "minItems": 1, "items": {"type": "number", "exclusiveMinimum": 0}},
        "cycle_ratio": {"type": "number", "exclusiveMinimum": 0},
        "cycle_interval": {"$ref": "#/$defs/interval"},
        "fit": {"type": "boolean", "description": "noise floor only"},
        "fitness": {"type": "string", "description": "noise floor only"}
      }
    }
  }
})json";

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "null") return value.is_null();
  fail(ATTUNE_INTERNAL_ERROR, "schema: unknown type '{}'", type);
}

class Validator {
 public:
  explicit Validator(const json& root) : root_(root) {}

  void check(const json& schema, const json& value, const std::string& at) {
    for (const auto& [word, rule] : schema.items()) apply(schema, word, rule, value, at);
  }

  std::vector<std::string> violations;

 private:
  void complain(const std::string& at, const std::string& what) {
    violations.push_back(fmt::format("{}: {}", at.empty() ? "/" : at, what));
  }

  void apply(const json& schema, const std::string& word, const json& rule, const json& value, const std::string& at) {
    if (word == "$ref") {
      check(root_.at(json::json_pointer(rule.get<std::string>().substr(1))), value, at);
    } else if (word == "type") {
      if (!has_type(value, rule)) complain(at, fmt::format("is not of type {}", rule.get<std::string>()));
    } else if (word == "const") {
      if (value != rule) complain(at, fmt::format("is {}; only {} is known", shown(value), rule.dump()));
    } else if (word == "enum") {
      if (std::find(rule.begin(), rule.end(), value) == rule.end())
        complain(at, fmt::format("is {}; allowed are {}", shown(value), rule.dump()));
    } else if (word == "minimum") {
      if (value.is_number() && value < rule) complain(at, fmt::format("is {}; at least {}", shown(value), rule.dump()));
    } else if (word == "exclusiveMinimum") {
      if (value.is_number() && value <= rule) complain(at, fmt::format("is {}; above {}", shown(value), rule.dump()));
    } else if (word == "required") {
      for (const json& name : rule)
        if (value.is_object() && !value.contains(name.get<std::string>()))
          complain(at, fmt::format("the field '{}' is missing", name.get<std::string>()));
    } else if (word == "properties") {
      for (const auto& [name, sub] : rule.items())
        if (value.is_object() && value.contains(name)) check(sub, value.at(name), at + "/" + name);
    } else if (word == "additionalProperties") {
      additional(schema, rule, value, at);
    } else if (word == "minItems") {
      if (value.is_array() && value.size() < rule.get<size_t>())
        complain(at, fmt::format("has {} items; at least {}", value.size(), rule.dump()));
    } else if (word == "items") {
      for (size_t i = 0; value.is_array() && i < value.size(); ++i) check(rule, value[i], fmt::format("{}/{}", at, i));
    } else if (word == "oneOf") {
      one_of(rule, value, at);
    } else {
      constexpr std::array annotations{"$schema", "$defs", "title", "description"};
      if (std::find(annotations.begin(), annotations.end(), word) == annotations.end())
        fail(ATTUNE_INTERNAL_ERROR, "schema: the word '{}' is not known", word);
    }
  }

  void additional(const json& schema, const json& rule, const json& value, const std::string& at) {
    if (!value.is_object()) return;
    for (const auto& [name, sub] : value.items()) {
      if (schema.contains("properties") && schema.at("properties").contains(name)) continue;
      if (rule.is_object())
        check(rule, sub, at + "/" + name);
      else if (!rule.get<bool>())
        complain(at, fmt::format("the field '{}' is not known", name));
    }
  }

  // Reports the alternative that came closest: "none of two matched" helps nobody.
  void one_of(const json& alternatives, const json& value, const std::string& at) {
    std::vector<std::string> closest;
    for (const json& alternative : alternatives) {
      Validator attempt(root_);
      attempt.check(alternative, value, at);
      if (attempt.violations.empty()) return;
      if (closest.empty() || attempt.violations.size() < closest.size()) closest = std::move(attempt.violations);
    }
    violations.insert(violations.end(), closest.begin(), closest.end());
  }

  static std::string shown(const json& value) {
    const std::string text = value.dump();
    return text.size() <= 60 ? text : text.substr(0, 57) + "...";
  }

  const json& root_;
};

}  // namespace

const json& evidence_schema() {
  static const json schema = json::parse(schema_text);
  return schema;
}

std::vector<std::string> schema_violations(const json& schema, const json& value) {
  Validator validator(schema);
  validator.check(schema, value, "");
  return validator.violations;
}

}  // namespace attune::lab
