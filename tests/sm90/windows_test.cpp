// Windows and sinks on the Hopper kernels: windows that leave rows, tiles and warpgroups without keys, that begin and
// end on the edges of blocks, and calls with more tiles than the card has multiprocessors; in every configuration that
// a kernel offers, through the gate.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/cuda_backend.hpp"
#include "tests/support/card.hpp"

namespace attune::sm90 {
namespace {

using lab::Case;
using lab::Contestant;
using lab::InputKind;
using lab::Outcome;
using lab::Storage;

constexpr const char* lengths[] = {"b1 h2/1 q1 k1",     "b1 h2/2 q64 k65",   "b2 h2/2 q129 k128",
                                   "b1 h4/2 q257 k700", "b1 h2/2 q700 k130", "b1 h1/1 q513 k513",
                                   "b1 h2/2 q1000 k60", "b1 h1/1 q90 k2100", "b3 h50/25 q260 k150"};
// Both sides, with and without causality, one key wide, as wide as a block and one more or less, wider than the keys.
constexpr const char* windows[] = {"w0,0",
                                   "w63,0",
                                   "w64,-1",
                                   "w65,3",
                                   "w0,-1",
                                   "w5,200",
                                   "w127,128",
                                   "w300,1",
                                   "causal-br w0,-1",
                                   "causal-br w64,-1",
                                   "causal-br w128,-1",
                                   "causal-tl w31,-1",
                                   "causal-tl w200,5",
                                   "w-1,0",
                                   "w-1,70"};

class HopperWindowsAndSinks : public test::CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    runtime = std::make_unique<gpu::Runtime>();
    const gpu::DeviceProperties& device = runtime->properties(0);
    if (device.capability() != 90) GTEST_SKIP() << "NO sm_90 GPU: " << device.name;
    truth = lab::make_cuda_reference();
  }

  // In every configuration of the kernel; returns how many there were.
  size_t expect_good(const char* kernel_name, const std::string& text, InputKind input) {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    const gpu::GpuKernel& kernel = gpu::find_gpu_kernel(kernel_name);
    const gpu::DeviceProperties& device = runtime->properties(0);
    if (!kernel.refusal_on(problem, device).empty()) return 0;
    const std::vector<std::string> configs = kernel.space(problem, device);
    std::vector<Contestant> contestants;
    for (const std::string& config : configs) {
      auto& executor = executors[config];
      if (!executor) executor = lab::make_cuda_executor(0, config);
      contestants.push_back({executor.get(), kernel_name});
    }
    lab::Checker checker(*contestants.at(0).executor, *truth, threads, lab::cuda_rows);
    const std::vector<Outcome> outcomes =
        checker.check(Case{text, "", input, 3, Storage::dense, std::nullopt}, contestants);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      EXPECT_EQ(outcomes[i].unsupported, "") << text;
      EXPECT_TRUE(outcomes[i].ok()) << text << " (" << name_of(input) << ") " << kernel_name << " " << configs[i]
                                    << ": " << outcomes[i].judgement.failure;
    }
    return outcomes.size();
  }

  cpu::Threads threads{attune_options{}};
  std::unique_ptr<gpu::Runtime> runtime;
  std::unique_ptr<lab::ReferenceSource> truth;
  std::map<std::string, std::unique_ptr<lab::Executor>> executors;
};

TEST_F(HopperWindowsAndSinks, EveryWindowOnEveryLength) {
  size_t checked = 0;
  for (const char* head : {"d64 f16", "d128 bf16", "d256 bf16"})
    for (const char* length : lengths)
      for (const char* window : windows)
        checked += expect_good("sm90/fwd", fmt::format("fwd {} {} {}", length, head, window), InputKind::normal);
  EXPECT_GT(checked, 3 * std::size(lengths) * std::size(windows));
}

// Maxima that rise from block to block, and scores far below zero, make trusting steps score their blocks again.
TEST_F(HopperWindowsAndSinks, TrustIsLostAndFoundBesideHiddenKeys) {
  for (const char* head : {"d64 bf16", "d128 f16", "d256 f16"})
    for (const InputKind input : {InputKind::rising_max, InputKind::far_negative, InputKind::heavy_tailed})
      for (const char* window : {"w200,0", "w300,300", "causal-br w450,-1"})
        EXPECT_GT(expect_good("sm90/fwd", fmt::format("fwd b1 h2/2 q700 k900 {} {}", head, window), input), 0u);
}

TEST_F(HopperWindowsAndSinks, ASinkIsAKeyWithoutAValue) {
  for (const char* kernel : {"sm90/fwd", "sm90/fwd_small"})
    for (const char* head : {"d64 f16", "d128 bf16"})
      for (const InputKind input : {InputKind::normal, InputKind::far_negative, InputKind::rising_max})
        for (const char* length : lengths)
          for (const char* mask : {"", " causal-br", " causal-tl", " w-1,5"})
            EXPECT_GT(expect_good(kernel, fmt::format("fwd {} {}{} sink", length, head, mask), input), 0u);
  for (const char* window : {"w0,0", "w100,0", "causal-br w64,-1"})
    EXPECT_GT(expect_good("sm90/fwd", fmt::format("fwd b2 h4/2 q300 k280 d128 f16 {} sink", window), InputKind::normal),
              0u);
}

}  // namespace
}  // namespace attune::sm90
