// What CI knows of GPU kernels without a GPU: what is selected, and that whatever may be selected has been checked on a
// GPU as it is now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "gpu/kernel.hpp"
#include "lab/evidence/kernel_checks.hpp"
#include "lab/evidence/stamp.hpp"
#include "lab/pack/selection.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Selection, TableIsUpToDate) {
  const std::string path = test::repo() + "/docs/selection.md";
  EXPECT_EQ(text_of(path), selection_table()) << "run: attune selection --out docs/selection.md";
}

TEST(Stamp, CoversTheHostFileAndWhatItIncludes) {
  EXPECT_EQ(host_hash_of("any/fwd").size(), 32u);
  EXPECT_EQ(host_hash_of("any/fwd"), host_hash_of("any/fwd"));
  EXPECT_NE(host_hash_of("any/fwd"), host_hash_of("any/reference"));
  EXPECT_THROW(host_hash_of("any/none"), Error);
  for (const gpu::GpuKernel* kernel : gpu::gpu_kernels()) EXPECT_NO_THROW(host_hash_of(kernel->name()));
}

TEST(Stamp, FollowsRulesThatHostAndDeviceShare) {
  const auto dense = host_files_of("sm90/fwd");
  EXPECT_THAT(dense, testing::IsSupersetOf({"kernels/sm90/fwd.cpp", "kernels/sm90/host.cpp",
                                            "kernels/sm90/fwd_storage.cuh", "kernels/attention/key_range.cuh"}));
  EXPECT_THAT(host_files_of("sm90/fwd_ranged"), testing::Contains("kernels/attention/key_blocks.cuh"));
  // What is fitted says which configuration is best and not what it computes.
  EXPECT_THAT(dense, testing::Not(testing::Contains(testing::EndsWith("_cost.hpp"))));
  EXPECT_THAT(text_of(test::repo() + "/kernels/sm90/fwd.cpp"), testing::HasSubstr("_cost.hpp\""));
}

TEST(Stamp, LeavesToTheCubinWhatOnlyTheDeviceSees) {
  EXPECT_EQ(host_part("int a;\n#ifdef __CUDACC_RTC__\nint b;\n#if x\nint c;\n#endif\n#endif\nint d;"),
            "int a;\nint d;");
  EXPECT_EQ(host_part("#ifdef __CUDACC_RTC__\nint a;\n#else\nint b;\n#endif\n"), "#else\nint b;\n#endif\n");
  EXPECT_EQ(host_part("#ifndef __CUDACC_RTC__\nint a;\n#else\nint b;\n#endif\nint c;\n"),
            "#ifndef __CUDACC_RTC__\nint a;\nint c;\n");
  EXPECT_EQ(host_part("#ifdef x\nint a;\n#else\nint b;\n#endif\n"), "#ifdef x\nint a;\n#else\nint b;\n#endif\n");
}

Promise promise_of(const std::string& kernel, const std::string& problem) {
  const gpu::GpuKernel& found = gpu::find_gpu_kernel(kernel);
  Problem asked = parse_problem(problem);
  asked.device_kind = DeviceKind::cuda;
  const gpu::DeviceProperties& device = gpu::typical_device("sm_90a");
  Promise promise;
  promise.kernel = kernel;
  promise.problem = problem;
  promise.arch = "sm_90a";
  promise.config = found.space(asked, device).at(0);
  promise.unit = found.recipe(asked, device, promise.config).steps.at(0).unit;
  return promise;
}

TEST(KernelChecks, ProblemsAreThoseTheUnitServes) {
  const Promise many = promise_of("any/fwd", "fwd b1 h1/1 q64 k64 d128 bf16");
  EXPECT_GE(problems_for(many).size(), 20u);
  for (const std::string& text : problems_for(many)) {
    EXPECT_THAT(text, testing::HasSubstr("bf16"));
    EXPECT_EQ(parse_problem(text).dim_qk, 128);
  }
  const Promise few = promise_of("any/fwd", "fwd b1 h1/1 q1 k64 d128 bf16");
  EXPECT_GE(problems_for(few).size(), 20u);
  for (const char* text :
       {"fwd b4 h32/8 q4096 k4096 d128 bf16 causal-br w1023,0", "fwd b4 h32/8 q4096 k4096 d64 f16 bias=1hqk"}) {
    const std::vector<std::string> own = problems_for(promise_of("sm90/fwd_ranged", text));
    EXPECT_GE(own.size(), 5u) << text;
  }
  for (const char* text : {"bwd b1 h1/1 q64 k64 d128 bf16", "bwd b1 h1/1 q64 k64 d128 bf16 bias=1hqk dbias"}) {
    const std::vector<std::string> gradients = problems_for(promise_of("any/bwd", text));
    EXPECT_GE(gradients.size(), 20u) << text;
    for (const std::string& problem : gradients) EXPECT_TRUE(problem.starts_with("bwd ")) << problem;
  }
}

TEST(KernelChecks, EveryPromiseHasProblems) {
  for (const Promise& promise : read_manifest_file(test::repo() + "/kernels/manifest.toml"))
    if (promise.arch == "sm_90a" && gpu::find_gpu_kernel(promise.kernel).selectable()) {
      EXPECT_FALSE(problems_for(promise).empty()) << promise.problem << " with " << promise.config;
    }
}

// What is shipped may be selected, and what may be selected is held to its evidence below. So no pack carries a kernel
// that no card has run.
TEST(KernelChecks, WhatIsShippedMayBeSelected) {
  for (const Promise& promise : read_manifest_file(test::repo() + "/kernels/manifest.toml"))
    EXPECT_TRUE(!promise.packed || gpu::find_gpu_kernel(promise.kernel).selectable()) << promise.kernel;
}

// A record as `attune evidence check` writes it, for one kernel.
class Freshness : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    jit::StoreOptions options = jit::store_options_from_environment();
    jit::Store store(options);
    kernels = compile_promised({promise_of("any/fwd", "fwd b1 h1/1 q64 k64 d64 f16")}, store);
    subject = subject_of(kernels[0].promise.unit, "sm_90a");
    stamp = stamp_of(*kernels[0].built, "any/fwd");
  }

  void write(const std::string& with_stamp, double error, const char* day) {
    save_record(check_record({{"a problem", subject, {{"rel_rms", error}}, {{"rel_rms", 1.0}}}}, {{"gpu", "a test"}},
                             {{subject, with_stamp}}, std::string(day) + "T00:00:00Z"),
                scratch.path);
  }

  lab::Freshness now() const { return check_freshness(kernels, scratch.path).at(0).freshness; }

  jit::Scratch scratch;
  std::vector<PromisedKernel> kernels;
  std::string subject, stamp;
};

TEST_F(Freshness, NeedsAPassedCheckOfExactlyThisCode) {
  EXPECT_EQ(now(), lab::Freshness::unknown);
  write("0-0", 0.5, "2026-01-01");
  EXPECT_EQ(now(), lab::Freshness::stale);
  write(stamp, 2.0, "2026-01-02");
  EXPECT_EQ(now(), lab::Freshness::stale) << "it was checked, and failed";
  write(stamp, 0.5, "2026-01-03");
  EXPECT_EQ(now(), lab::Freshness::fresh);
  write("0-0", 0.5, "2026-01-04");
  EXPECT_EQ(now(), lab::Freshness::fresh) << "an older record may still speak for the code of today";
}

TEST(Evidence, EveryKernelThatMayBeSelectedHasBeenCheckedOnAGpuAsItIsNow) {
  SKIP_WITHOUT_NVRTC();
  if (!jit::find_nvrtc(INT_MAX).measured()) GTEST_SKIP() << "stamps are those of the NVRTC of kernels/compiler.toml";
  // Before the first record there is nothing to be fresher than; from then on every change of a kernel must bring its
  // own.
  const std::filesystem::path folder = test::repo() + "/evidence";
  if (!std::filesystem::exists(folder) || std::filesystem::is_empty(folder))
    GTEST_SKIP() << "NO EVIDENCE: evidence/ holds no record of a check on a GPU; run `attune evidence check` there";
  std::vector<Promise> promises = read_manifest_file(test::repo() + "/kernels/manifest.toml");
  std::erase_if(promises, [](const Promise& promise) { return promise.arch != "sm_90a"; });
  jit::Store store(jit::store_options_from_environment());
  std::string missing;
  for (const KernelFreshness& entry :
       check_freshness(compile_promised(std::move(promises), store), test::repo() + "/evidence"))
    if (entry.freshness != lab::Freshness::fresh)
      missing += fmt::format("{}: {}\n", name_of(entry.freshness), entry.subject);
  EXPECT_EQ(missing, "") << "run `attune evidence check` on a GPU and commit the record";
}

}  // namespace
}  // namespace attune::lab
