#include "tests/sm90_emulated/instances.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace attune::emulator {
namespace {

std::vector<Instance>& instances() {
  static std::vector<Instance> list;
  return list;
}

// "attune::device::sm90_fwd" is "sm90_fwd".
std::string_view short_scope(std::string_view scope) { return scope.substr(scope.rfind(':') + 1); }

}  // namespace

namespace {

bool is_of(const Instance& instance, const jit::DeviceUnit& unit) {
  return instance.scope == short_scope(unit.scope) && instance.variant == unit.variant &&
         instance.config == unit.config;
}

}  // namespace

bool has_instance(const jit::DeviceUnit& unit) {
  return std::ranges::any_of(instances(), [&](const Instance& instance) { return is_of(instance, unit); });
}

const Instance& find_instance(const jit::DeviceUnit& unit) {
  for (const Instance& instance : instances())
    if (is_of(instance, unit)) {
      if (instance.params_bytes != unit.params_bytes)
        throw std::runtime_error(fmt::format("{}: Params have {} bytes here and {} for the host", unit.name,
                                             instance.params_bytes, unit.params_bytes));
      return instance;
    }
  throw std::runtime_error(fmt::format("not compiled for the emulator; add\nATTUNE_EMULATED({}, ({}), ({}))",
                                       short_scope(unit.scope), unit.variant, unit.config));
}

void register_instance(Instance instance) { instances().push_back(std::move(instance)); }

}  // namespace attune::emulator
