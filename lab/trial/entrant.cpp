#include "lab/trial/entrant.hpp"

#include <map>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "lab/ladder/unfused.hpp"
#include "lab/try/kernel_callee.hpp"

namespace attune::lab {
namespace {

std::map<std::string, const attune_contender_api*>& callables() {
  static std::map<std::string, const attune_contender_api*> all;
  return all;
}

}  // namespace

bool Entrant::same_code(const Entrant& other) const {
  return kernel == other.kernel && library == other.library && plugin == other.plugin && config == other.config &&
         callable == other.callable && source == other.source && unfused == other.unfused;
}

std::string Entrant::option() const {
  if (!library.empty()) return "--against " + library;
  if (!plugin.empty()) return "--plugin " + plugin;
  if (!callable.empty()) return "--callable " + callable;
  return source.empty() || unfused ? "" : "--source " + source;
}

nlohmann::json to_json(const Entrant& entrant) {
  return {{"name", entrant.name},     {"kernel", entrant.kernel},     {"library", entrant.library},
          {"plugin", entrant.plugin}, {"config", entrant.config},     {"threads", entrant.threads},
          {"source", entrant.source}, {"callable", entrant.callable}, {"unfused", entrant.unfused}};
}

Entrant entrant_from_json(const nlohmann::json& json) {
  return {json.at("name"),    json.at("kernel"),   json.at("library"), json.at("plugin"), json.at("config"),
          json.at("threads"), json.at("callable"), json.at("source"),  json.at("unfused")};
}

std::unique_ptr<Callee> callee_of(const Entrant& entrant, const Problem& problem) {
  if (!entrant.plugin.empty()) return plugin_callee(entrant.plugin, problem, entrant.name);
  if (!entrant.callable.empty()) {
    const auto found = callables().find(entrant.callable);
    if (found == callables().end())
      fail(ATTUNE_INVALID_ARGUMENT, "{}: this process has no Python to call it", entrant.callable);
    return contender_callee(*found->second, {{"callable", entrant.callable}}, problem, entrant.name);
  }
  if (entrant.unfused) return unfused_callee(entrant.source, problem, entrant.name);
  if (!entrant.source.empty()) return kernel_callee(entrant.source, problem, entrant.name);
  if (!entrant.config.empty()) return configured_callee(entrant.name, entrant.kernel, entrant.config, problem);
  const Library library = entrant.library.empty() ? Library::own() : Library::open(entrant.library);
  return library_callee(entrant.name, library, problem, entrant.kernel, entrant.threads);
}

void provide_callable(const std::string& callable, const attune_contender_api* api) { callables()[callable] = api; }

}  // namespace attune::lab
