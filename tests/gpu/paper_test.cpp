// Selection and planning for an H200 that need not be there: which configurations a kernel offers, and which launches
// may overlap the kernel before them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "gpu/kernel.hpp"

namespace attune::gpu {
namespace {

using testing::HasSubstr;
using testing::Not;

class OnPaper : public testing::Test {
 protected:
  static Problem on_gpu(const std::string& text) {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    return problem;
  }
  Step first_step(const GpuKernel& kernel, const Problem& problem) const {
    return kernel.recipe(problem, h200, kernel.space(problem, h200).at(0)).steps.at(0);
  }

  const DeviceProperties& h200 = typical_device("sm_90a");
  Context context{attune_options{}, std::make_unique<Runtime>(std::vector{h200})};
};

TEST_F(OnPaper, ConfigurationsAreBestFirst) {
  for (const char* text : {"fwd b1 h8/8 q512 k512 d64 f16", "fwd b1 h8/8 q2048 k2048 d64 f16 causal-br",
                           "fwd b1 h32/32 q512 k512 d128 bf16 causal-br", "fwd b16 h16/16 q2048 k2048 d128 bf16",
                           "fwd b1 h8/2 q1 k700 d64 f16"}) {
    const Problem problem = on_gpu(text);
    for (const GpuKernel* kernel : gpu_kernels()) {
      if (!kernel->refusal_on(problem, h200).empty()) continue;
      SCOPED_TRACE(testing::Message() << kernel->name() << ", " << text);
      const std::vector<Configuration> list = kernel->configurations(problem, context);
      ASSERT_FALSE(list.empty());
      EXPECT_TRUE(std::ranges::is_sorted(list, {}, &Configuration::predicted_seconds));
      EXPECT_GT(list[0].predicted_seconds, 0);
      EXPECT_EQ(kernel->predicted_seconds(problem, context), list[0].predicted_seconds);
      EXPECT_EQ(first_step(*kernel, problem).unit.config, list[0].text) << "what it takes by default";
    }
    for (const char* modelled : {"sm90/fwd", "sm90/fwd_small"}) {
      const std::vector<Configuration> list = find_gpu_kernel(modelled).configurations(problem, context);
      EXPECT_LT(list.front().predicted_seconds, list.back().predicted_seconds) << modelled << ", " << text;
    }
  }
}

TEST_F(OnPaper, GradientsRunByNameUntilACardHasRunThem) {
  const Problem problem = on_gpu("bwd b1 h8/8 q512 k512 d64 f16");
  const GpuKernel& kernel = find_gpu_kernel("any/bwd");
  EXPECT_EQ(select(problem, context, "any/bwd").chosen, &kernel);
  if (kernel.selectable()) {
    EXPECT_EQ(select(problem, context, "").chosen, &kernel);
    return;
  }
  try {
    context.prepare(problem);
    ADD_FAILURE() << "a kernel took it";
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_UNSUPPORTED);
    EXPECT_THAT(error.what(), HasSubstr("no kernel computes 'bwd' on this kind of device yet; by name only: any/bwd"));
  }
  EXPECT_THAT(context.explain(problem), HasSubstr("kernel: none\nwhy: no kernel computes 'bwd'"));
}

TEST_F(OnPaper, GradientsFitEveryDevice) {
  const GpuKernel& kernel = find_gpu_kernel("any/bwd");
  for (const DeviceProperties& device : typical_devices())
    for (const char* dims : {"d1", "d64", "d65/3", "d129", "d193", "d257", "d512"})
      for (const char* dtype : {"f16", "bf16", "f32"})
        for (const char* features : {"", " cap5 sink dsink bias=1hqk dbias"}) {
          const std::string text = fmt::format("bwd b2 h4/2 q100 k130 {} {}{}", dims, dtype, features);
          SCOPED_TRACE(device.arch() + ", " + text);
          const Problem problem = on_gpu(text);
          const std::vector<std::string> configs = kernel.space(problem, device);
          ASSERT_FALSE(configs.empty());
          for (const std::string& config : configs) {
            const Recipe recipe = kernel.recipe(problem, device, config);
            EXPECT_EQ(recipe.workspace_bytes, 2u * 4 * 100 * 8) << "two floats a row";
            EXPECT_EQ(recipe.steps.size(), *features == 0 ? 3u : 5u);
            for (const Step& step : recipe.steps) {
              EXPECT_LE(static_cast<int>(step.unit.smem_bytes), device.smem_per_block_bytes);
              EXPECT_EQ(step.unit.config, config);
            }
          }
        }
}

// A cluster lies in one part of a GPU, and parts differ: how many run at a time is known of the card, not computed.
TEST_F(OnPaper, ClustersAreOfferedWhereTheyFit) {
  const GpuKernel& kernel = find_gpu_kernel("sm90/fwd_small");
  const auto with_cluster = [&](const std::string& text, const DeviceProperties& device, int blocks) {
    std::vector<Configuration> list = kernel.configurations_on(on_gpu(text), device);
    std::erase_if(list, [&](const Configuration& c) {
      return c.text.find(fmt::format(".cluster = {},", blocks)) == c.text.npos;
    });
    return list;
  };
  DeviceProperties without = h200;
  without.clusters[4] = 0;
  for (const char* head : {"d64 f16", "d128 bf16 causal-br"}) {
    const auto text = [&](int tiles) { return fmt::format("fwd b1 h{0}/{0} q64 k8192 {1}", tiles, head); };
    const std::vector<Configuration> offered = with_cluster(text(4), h200, 16);
    ASSERT_FALSE(offered.empty()) << head;
    EXPECT_TRUE(with_cluster(text(4), without, 16).empty()) << head;
    EXPECT_THROW(kernel.recipe(on_gpu(text(4)), without, offered[0].text), Error) << head;
    EXPECT_FALSE(with_cluster(text(4), without, 8).empty()) << head;
    EXPECT_EQ(kernel.recipe(on_gpu(text(4)), h200, offered[0].text).steps.at(0).grid, (jit::Dim3{16, 4, 1})) << head;
    // One more tile than there is room for doubles the time, whatever the number of multiprocessors.
    for (const auto& [blocks, room] : {std::pair(4, 30), std::pair(8, 15)}) {
      const auto fits = with_cluster(text(room), h200, blocks), too_many = with_cluster(text(room + 1), h200, blocks);
      ASSERT_EQ(fits.size(), 1u);
      EXPECT_DOUBLE_EQ(too_many.at(0).predicted_seconds, 2 * fits[0].predicted_seconds) << blocks;
    }
  }
}

TEST_F(OnPaper, ExplanationsListThem) {
  const Problem problem = on_gpu("fwd b1 h8/8 q512 k512 d64 f16");
  const Selection selection = select(problem, context, "");
  const std::string text = explanation(problem, selection, context);
  ASSERT_EQ(selection.chosen->name(), "sm90/fwd_small");
  size_t at = text.find("configurations of sm90/fwd_small:\n");
  ASSERT_NE(at, text.npos) << text;
  for (const Configuration& configuration : selection.chosen->configurations(problem, context)) {
    const size_t next = text.find(configuration.text, at);
    ASSERT_NE(next, text.npos) << configuration.text << " is missing or out of order in\n" << text;
    at = next;
  }
  EXPECT_THAT(text, HasSubstr(" us  sm90/fwd\n"));
  EXPECT_THAT(explanation(on_gpu("fwd b1 h8/8 q512 k512 d80 f16"),
                          select(on_gpu("fwd b1 h8/8 q512 k512 d80 f16"), context, ""), context),
              HasSubstr("-  sm90/fwd: head dim 80 is not"));
}

TEST_F(OnPaper, LaunchesOverlapWhereAskedAndAble) {
  const std::string plain = "fwd b1 h8/8 q512 k512 d64 f16";
  for (const GpuKernel* kernel : gpu_kernels())
    for (const char* asked : {"", " overlap", " overlap kvready"}) {
      const Problem problem = on_gpu(plain + asked);
      if (&kernel->operation() != problem.operation || !kernel->refusal_on(problem, h200).empty()) continue;
      const bool able = kernel->name() == "sm90/fwd_small", overlaps = able && problem.has(ATTUNE_OVERLAP);
      const Step step = first_step(*kernel, problem);
      EXPECT_EQ(step.programmatic, overlaps) << kernel->name() << asked;
      // Whatever does not matter to a kernel must not cost another compilation.
      const bool early = able && problem.has(ATTUNE_KV_READY);
      EXPECT_EQ(step.unit.variant == first_step(*kernel, on_gpu(plain)).unit.variant, !early)
          << kernel->name() << asked;

      const Selection selection = select(problem, context, kernel->name());
      if (!problem.has(ATTUNE_OVERLAP))
        EXPECT_THAT(selection.why, Not(HasSubstr("overlap")));
      else
        EXPECT_THAT(selection.why, HasSubstr(overlaps ? "; overlaps the end of" : "; runs in stream order"));
    }
}

TEST_F(OnPaper, ScalesThatLeaveFloat32AreRefused) {
  Problem problem = on_gpu("fwd b1 h1/1 q20 k40 d16 f32");
  problem.scale = 2e38f;
  EXPECT_NE(select(problem, context, "").chosen, nullptr);
  for (const float scale : {2.1e38f, -3.4e38f}) {
    problem.scale = scale;
    const Selection selection = select(problem, context, "");
    EXPECT_EQ(selection.chosen, nullptr);
    EXPECT_THAT(selection.why, HasSubstr("is not within -2e+38 .. 2e+38"));
  }
}

}  // namespace
}  // namespace attune::gpu
