// What models people run ask of a Hopper card. No cliff: a kernel of its own takes every call, not the plain one alone.
#include <gtest/gtest.h>

#include "core/problem.hpp"
#include "gpu/kernel.hpp"
#include "lab/sets.hpp"

namespace attune::sm90 {
namespace {

TEST(Models, EveryCallHasAKernelOfHoppers) {
  const gpu::DeviceProperties device = gpu::typical_device("sm_90a");
  for (const std::string& text : lab::find_set("models").problems) {
    const Problem problem = parse_problem(text);
    std::string refusals;
    bool taken = false;
    for (const gpu::GpuKernel* kernel : gpu::gpu_kernels()) {
      if (!kernel->name().starts_with("sm90/") || &kernel->operation() != problem.operation) continue;
      const std::string refusal = kernel->refusal_on(problem, device);
      taken = taken || refusal.empty();
      refusals += std::string(kernel->name()) + ": " + refusal + "\n";
    }
    EXPECT_TRUE(taken) << text << "\n" << refusals;
  }
}

// Their launches can be planned, and none asks for more than the card has.
TEST(Models, TheRangedKernelPlansEveryCall) {
  const gpu::DeviceProperties device = gpu::typical_device("sm_90a");
  const gpu::GpuKernel& kernel = gpu::find_gpu_kernel("sm90/fwd_ranged");
  for (const std::string& text : lab::find_set("models").problems) {
    const Problem problem = parse_problem(text);
    ASSERT_EQ(kernel.refusal_on(problem, device), "") << text;
    for (const std::string& config : kernel.space(problem, device))
      for (const gpu::Step& step : kernel.recipe(problem, device, config).steps) {
        EXPECT_LE(static_cast<int>(step.unit.smem_bytes), device.smem_per_block_bytes) << text;
        EXPECT_LE(step.unit.role_registers, 65536u) << text;
        EXPECT_GE(step.grid.x, 1u) << text;
      }
  }
}

}  // namespace
}  // namespace attune::sm90
