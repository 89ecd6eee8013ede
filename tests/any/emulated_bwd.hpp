// Kernel any/bwd, run by the emulator: its own recipe, parameters and device code, with workspace of its own.
#pragma once

#include "tests/any/emulated.hpp"
// The emulator must come first.
#include "kernels/any/bwd.cuh"

namespace attune::emulator {

using device::any_bwd::Config;
using device::any_bwd::Params;
using device::any_bwd::Part;
using device::any_bwd::Variant;

template <Variant variant, Config config>
void run_part(const Params& params, unsigned seed) {
  using Storage = device::any_bwd::SharedStorage<variant, config>;
  static_assert(device::any_bwd::legal(variant, config, INT_MAX));
  static_assert(sizeof(Storage) == device::any_bwd::shared_bytes(variant, config));
  const int64_t blocks = std::max<int64_t>(blocks_of(variant.part, config, params), 1);
  const jit::Dim3 grid{static_cast<uint32_t>(std::min<int64_t>(blocks, INT_MAX)), 1, 1};
  Block::launch(some_blocks(grid, seed), static_cast<unsigned>(threads_of(variant, config)), sizeof(Storage), seed,
                [&] { device::any_bwd::run<variant, config>(params); });
}

// Every part of the recipe, in its order.
template <device::Dtype dtype, int dim, Config config>
void run_backward(const gpu::Recipe& recipe, const Operands& operands, unsigned seed) {
  for (const gpu::Step& step : recipe.steps) {
    Params params{};
    step.bind(gpu::Driver{}, operands, &params);
    const std::string& unit = step.unit.variant;
    const bool general = unit.find(".general = true") != std::string::npos;
    const auto is = [&](const char* part) { return unit.find(part) != std::string::npos; };
    const auto run_tiled = [&]<Part part>() {
      if (general)
        run_part<Variant{part, dtype, dim, true}, config>(params, seed);
      else
        run_part<Variant{part, dtype, dim, false}, config>(params, seed);
    };
    if (is("Part::deltas"))
      run_part<Variant{Part::deltas, dtype}, config>(params, seed);
    else if (is("Part::sinks"))
      run_part<Variant{Part::sinks, dtype}, config>(params, seed);
    else if (is("Part::keys"))
      run_tiled.template operator()<Part::keys>();
    else if (is("Part::rows"))
      run_tiled.template operator()<Part::rows>();
    else if (is("Part::biases"))
      run_part<Variant{Part::biases, dtype, dim, true}, config>(params, seed);
    else
      throw std::runtime_error("the emulator does not know " + unit);
  }
}

// With one of several configurations: one and two warps, one and two stages, shared and own channels.
inline void backward(const Problem& problem, const Operands& operands, unsigned seed) {
  const gpu::GpuKernel& kernel = gpu::find_gpu_kernel("any/bwd");
  const gpu::DeviceProperties& device = gpu::typical_device("sm_80");
  const gpu::Recipe recipe = kernel.recipe(problem, device, kernel.space(problem, device).at(0));
  // Poisoned, as any memory that a call is given.
  std::vector<double> workspace(recipe.workspace_bytes / sizeof(double) + 1, std::numeric_limits<double>::quiet_NaN());
  Operands with = operands;
  with.workspace = workspace.data();
  with.workspace_bytes = recipe.workspace_bytes;
  with_dtype(problem.dtype, [&](auto dtype) {
    constexpr device::Dtype d = dtype.value;
    const int64_t dim = std::max(problem.dim_qk, problem.dim_v);
    if (dim <= 64) {
      if (seed % 2 == 0)
        run_backward<d, 64, Config{2, 1, 16, 2}>(recipe, with, seed);
      else
        run_backward<d, 64, Config{1, 2, 32, 1}>(recipe, with, seed);
    } else if (dim <= 128) {
      run_backward<d, 128, Config{2, 1, 16, 2}>(recipe, with, seed);
    } else {
      run_backward<d, 512, Config{1, 4, d == device::Dtype::f32 ? 8 : 16, 1}>(recipe, with, seed);
    }
  });
}

}  // namespace attune::emulator
