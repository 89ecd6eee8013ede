// What models people run ask of a Hopper card. No cliff: `attune explain --arch sm_90a` names a kernel of its own for
// every call, never one of kernels/any.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/problem.hpp"
#include "dispatch/context.hpp"
#include "gpu/kernel.hpp"
#include "lab/sets.hpp"

namespace attune::sm90 {
namespace {

TEST(Models, NoCallFallsBackToTheKernelsForEveryCard) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = 1;
  Context context(options, std::make_unique<gpu::Runtime>(std::vector{gpu::typical_device("sm_90a")}));
  for (const std::string& text : lab::find_set("models").problems) {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    const Selection selection = select(problem, context, "");
    ASSERT_NE(selection.chosen, nullptr) << text;
    EXPECT_TRUE(selection.chosen->name().starts_with("sm90/"))
        << text << " runs " << selection.chosen->name() << ": " << explanation(problem, selection, context);
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
