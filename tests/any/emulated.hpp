// The plain kernels of kernels/any, run by the emulator: their own recipes, parameters and device code.
#pragma once

#include "tests/any/emulator.hpp"
// The emulator must come first.
#include "kernels/any/fwd.cuh"
#include "kernels/any/merge.cuh"
#include "kernels/any/reference.cuh"

#include "gpu/kernel.hpp"

namespace attune::emulator {

// Calls visit with the smallest compiled size that holds both head dims. A kernel compiled for more than it needs must
// be right as well, so a few sizes do.
template <typename Visit>
void with_dim(const Problem& problem, Visit visit) {
  const int64_t dim = std::max(problem.dim_qk, problem.dim_v);
  if (dim <= 64) return visit(std::integral_constant<int, 64>());
  if (dim <= 128) return visit(std::integral_constant<int, 128>());
  visit(std::integral_constant<int, 512>());
}

template <typename Visit>
void with_dtype(Dtype dtype, Visit visit) {
  switch (dtype) {
    case Dtype::f16:
      return visit(std::integral_constant<device::Dtype, device::Dtype::f16>());
    case Dtype::bf16:
      return visit(std::integral_constant<device::Dtype, device::Dtype::bf16>());
    case Dtype::f32:
      return visit(std::integral_constant<device::Dtype, device::Dtype::f32>());
  }
}

// The grid is smaller than asked for: every kernel here walks over its blocks.
inline jit::Dim3 some_blocks(jit::Dim3 grid, unsigned seed) { return {std::min(grid.x, 1 + seed % 7), 1, 1}; }

inline gpu::Step step_of(std::string_view kernel_name, const Problem& problem, std::string_view config) {
  const gpu::GpuKernel& kernel = gpu::find_gpu_kernel(kernel_name);
  return kernel.recipe(problem, gpu::typical_device("sm_80"), config).steps.at(0);
}

template <int warps, int rows_per_warp>
void run_forward(const Problem& problem, const Operands& operands, unsigned seed) {
  using namespace device::any_fwd;
  const gpu::Step step =
      step_of("any/fwd", problem, fmt::format(".warps = {}, .rows_per_warp = {}", warps, rows_per_warp));
  Params params{};
  step.bind(gpu::Driver{}, operands, &params);
  with_dtype(problem.dtype, [&](auto dtype) {
    with_dim(problem, [&](auto dim) {
      constexpr Variant variant{dtype.value, dim.value, dim.value};
      constexpr Config config{warps, rows_per_warp};
      Block::launch(some_blocks(step.grid, seed), step.unit.threads, sizeof(SharedStorage<variant, config>), seed,
                    [&] { run<variant, config>(params); });
    });
  });
}

// With one of several configurations.
inline void forward(const Problem& problem, const Operands& operands, unsigned seed) {
  switch (problem.seq_q <= 8 ? 2 : seed % 3) {
    case 0:
      return run_forward<4, 2>(problem, operands, seed);
    case 1:
      return run_forward<8, 1>(problem, operands, seed);
    default:
      return run_forward<4, 1>(problem, operands, seed);
  }
}

// Unrounded results as DeviceReference gives them, or rounded ones to the operands where o is null.
inline void reference(const Problem& problem, const Operands& operands, double* o, double* lse, unsigned seed) {
  using namespace device::any_reference;
  const gpu::Step step = step_of("any/reference", problem, ".warps = 8");
  Params params{};
  step.bind(gpu::Driver{}, operands, &params);
  params.o = o;
  params.lse = lse;
  with_dtype(problem.dtype, [&](auto dtype) {
    with_dim(problem, [&](auto dim) {
      constexpr Variant variant{dtype.value, dim.value, dim.value};
      constexpr Config config{};
      Block::launch(some_blocks(step.grid, seed), step.unit.threads, sizeof(SharedStorage<variant, config>), seed,
                    [&] { run<variant, config>(params); });
    });
  });
}

inline void merge(const Problem& problem, const Operands& operands, unsigned seed) {
  using namespace device::any_merge;
  const gpu::Step step = step_of("any/merge", problem, ".warps = 4");
  Params params{};
  step.bind(gpu::Driver{}, operands, &params);
  Block::launch(some_blocks(step.grid, seed), step.unit.threads, step.unit.smem_bytes, seed,
                [&] { run<Variant{}, Config{}>(params); });
}

}  // namespace attune::emulator
