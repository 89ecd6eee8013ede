// Runs Hopper kernels without a card: their own recipes and parameters on the emulated machine, judged by the gate.
//
//   #include "tests/sm90_emulated/harness.hpp"
//   #include "kernels/sm90/fwd.cuh"
//
//   ATTUNE_EMULATED(sm90_fwd, (.dtype = Dtype::f16, .dim = 64, .causal = true), (.warpgroups = 3, ...))
//
//   EXPECT_EQ(emulator::verdict("sm90/fwd", "fwd b1 h2/1 q300 k300 d64 f16 causal-br"), "");
//
// ATTUNE_EMULATED compiles a kernel for one Variant and Config, written as the texts of the kernel's recipe are. What a
// problem asks for and is not compiled fails with the line to add.
#pragma once

#include "tests/sm90_emulated/run.hpp"
// The emulator must come before kernels.
#include "tests/sm90_emulated/device.hpp"

namespace attune::emulator {

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
