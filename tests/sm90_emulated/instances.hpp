// Kernels that are compiled for the emulator. Include it, or harness.hpp, before any kernel.
#pragma once

#include <string>
#include <utility>

#include "jit/unit.hpp"
#include "tests/sm90_emulated/device.hpp"

namespace attune::emulator {

// A kernel compiled for one Variant and Config.
struct Instance {
  std::string scope, variant, config;
  size_t params_bytes;
  void (*run)(const void* params);
};
void register_instance(Instance instance);
bool has_instance(const jit::DeviceUnit& unit);
const Instance& find_instance(const jit::DeviceUnit& unit);  // throws with the line to add
struct Registered {
  explicit Registered(Instance instance) { register_instance(std::move(instance)); }
};

template <typename Params, auto run>
Instance instance_of(const char* scope, const char* variant, const char* config) {
  return {scope, variant, config, sizeof(Params), [](const void* params) { run(*static_cast<const Params*>(params)); }};
}

}  // namespace attune::emulator

#define ATTUNE_JOIN_(a, b) a##b
#define ATTUNE_JOIN(a, b) ATTUNE_JOIN_(a, b)
#define ATTUNE_BARE(...) __VA_ARGS__
#define ATTUNE_TEXT(...) #__VA_ARGS__

#define ATTUNE_EMULATED(scope, variant, config) ATTUNE_EMULATED_AT(__COUNTER__, scope, variant, config)
#define ATTUNE_EMULATED_AT(number, scope, variant, config)                                                     \
  namespace attune::device::scope {                                                                            \
  namespace {                                                                                                  \
  const ::attune::emulator::Registered ATTUNE_JOIN(attune_instance_, number)(                                  \
      ::attune::emulator::instance_of<Params, &run<Variant{ATTUNE_BARE variant}, Config{ATTUNE_BARE config}>>( \
          #scope, ATTUNE_TEXT variant, ATTUNE_TEXT config));                                                   \
  }                                                                                                            \
  }
