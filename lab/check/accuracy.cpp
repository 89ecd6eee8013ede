#include "lab/check/accuracy.hpp"

#include <toml++/toml.h>

#include "accuracy_toml.hpp"
#include "core/error.hpp"

namespace attune::lab {
namespace {

double positive(const toml::table& table, std::string_view section, std::string_view key) {
  const auto value = table[section][key].value<double>();
  if (!value || !(*value > 0))
    fail(ATTUNE_INVALID_ARGUMENT, "accuracy.toml: {}.{} is missing or not a number above 0", section, key);
  return *value;
}

}  // namespace

Accuracy accuracy_from(std::string_view text) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(ATTUNE_INVALID_ARGUMENT, "accuracy.toml, line {}: {}", error.source().begin.line, error.description());
  }
  Accuracy accuracy;
  accuracy.rms_factor = positive(table, "rms", "factor");
  accuracy.rms_factor_f32 = positive(table, "rms", "factor_f32");
  accuracy.rms_factor_large_logit = positive(table, "rms", "factor_large_logit");
  accuracy.large_logit = positive(table, "rms", "large_logit");
  accuracy.lse_bound = positive(table, "lse", "bound");
  accuracy.max_ulp_f16 = positive(table, "max_ulp", "f16");
  accuracy.max_ulp_bf16 = positive(table, "max_ulp", "bf16");
  accuracy.max_ulp_f32 = positive(table, "max_ulp", "f32");
  accuracy.high_factor = positive(table, "f32_high", "factor");
  accuracy.high_factor_lse = positive(table, "f32_high", "factor_lse");
  return accuracy;
}

const Accuracy& frozen_accuracy() {
  static const Accuracy accuracy = accuracy_from(accuracy_toml);
  return accuracy;
}

}  // namespace attune::lab
