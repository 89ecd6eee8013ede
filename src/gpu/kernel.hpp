// What a GPU kernel's own .cpp provides: for a problem and a device, a Recipe. Compiling, caching, loading, launching,
// explaining, packing and the ceilings follow from it.
//
// Everything here is a pure function of the problem and the properties of a device, so that selection, planning and
// compilation work and are tested on machines without a GPU.
#pragma once

#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/kernel.hpp"
#include "gpu/device.hpp"
#include "gpu/launch.hpp"
#include "jit/unit.hpp"

namespace attune::gpu {

// One launch of a call.
struct Step {
  jit::DeviceUnit unit;
  jit::Dim3 grid;
  bool programmatic = false;  // see Launch; of the first step only if ATTUNE_OVERLAP is asked for
  // Writes unit.params_bytes for one call to `params`, which is aligned to 64 bytes. On the hot path: must not
  // allocate.
  std::function<void(const Driver&, const Operands&, void* params)> bind;
};

// `constant` holds what does not depend on the call; fill(params, operands, driver) adds the pointers and tensor maps.
template <typename Params, typename Fill>
Step make_step(jit::DeviceUnit unit, jit::Dim3 grid, const Params& constant, Fill fill) {
  static_assert(std::is_trivially_copyable_v<Params> && std::is_standard_layout_v<Params>);
  unit.params_bytes = sizeof(Params);
  return {std::move(unit), grid, false, [constant, fill](const Driver& driver, const Operands& operands, void* params) {
            Params& out = *new (params) Params(constant);
            fill(out, operands, driver);
          }};
}

// How a problem is computed on a device: launches that follow each other in the stream.
struct Recipe {
  std::vector<Step> steps;
  uint64_t workspace_bytes = 0;
};

// A merge passes two pointers for each of up to 256 parts.
inline constexpr size_t largest_params_bytes = 8192;

// The configuration that a kernel takes, with what the kernel found out on the way to it.
struct Choice {
  double predicted_seconds = 0;
  std::function<Recipe()> recipe;
};

class GpuKernel : public Kernel {
 public:
  DeviceKind device_kind() const final { return DeviceKind::cuda; }

  // As refusal, configurations and plan of Kernel, for a device that need not be there. The texts of configurations are
  // initialisers, and the kernel's predicted time is that of the first.
  virtual std::string refusal_on(const Problem& problem, const DeviceProperties& device) const = 0;
  virtual std::vector<Configuration> configurations_on(const Problem& problem,
                                                       const DeviceProperties& device) const = 0;
  // With one of these configurations.
  virtual Recipe recipe(const Problem& problem, const DeviceProperties& device, std::string_view config) const = 0;

  // The first of configurations_on. A kernel that works out how its tiles are shared out before it knows which
  // configuration is best keeps that here for the recipe, so that it is worked out once for a plan.
  virtual Choice choice_on(const Problem& problem, const DeviceProperties& device) const;

  // The texts of configurations_on: what a sweep may try.
  std::vector<std::string> space(const Problem& problem, const DeviceProperties& device) const;

  std::string refusal(const Problem& problem, const Context& context) const final;
  double predicted_seconds(const Problem& problem, const Context& context) const final;
  std::vector<Configuration> configurations(const Problem& problem, const Context& context) const final;
  bool overlaps(const Problem& problem, const Context& context) const final;
  std::unique_ptr<const Plan> plan(const Problem& problem, Context& context) const final;
  Offer offer(const Problem& problem, const Context& context) const final;

  // A plan with a configuration of one's own choice, for sweeps.
  std::unique_ptr<const Plan> plan_with(const Problem& problem, Context& context, std::string_view config) const;
};

// Those of the registry that run on GPUs.
std::vector<const GpuKernel*> gpu_kernels();
const GpuKernel& find_gpu_kernel(std::string_view name);  // throws ATTUNE_INVALID_ARGUMENT

}  // namespace attune::gpu
