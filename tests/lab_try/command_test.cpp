// attune try as a user meets it: a kernel file, a plug-in, and what is wrong with them. Compiling needs NVRTC, and no
// GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.hpp"
#include "jit/nvrtc.hpp"
#include "tests/support/gpu.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

class Try : public testing::Test {
 protected:
  test::Outcome attune(const std::string& arguments) const {
    return test::shell("cd " + place_.path().string() + " && " + test::build() + "/attune " + arguments);
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(place_.path() / name) << text;
    return name;
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(place_.path() / name).rdbuf();
    return text.str();
  }
  static std::vector<json> objects(const test::Outcome& outcome) {
    std::vector<json> lines;
    std::istringstream text(outcome.output);
    for (std::string line; std::getline(text, line);)
      if (line.starts_with("{")) lines.push_back(json::parse(line));
    return lines;
  }
  static bool has_compiler() {
    try {
      jit::find_nvrtc(1000);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  // The starting file with one piece of its text in place of another.
  std::string changed(const std::string& from, const std::string& to) const {
    attune("try --new start.cu");
    std::string text = read("start.cu");
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write("changed.cu", text.replace(at, from.size(), to));
  }

  test::TemporaryDirectory place_;
};

class TryKernel : public Try {
 protected:
  void SetUp() override {
    if (!has_compiler()) GTEST_SKIP() << "there is no NVRTC here";
  }
};

TEST_F(TryKernel, TheStartingFileCompilesForEveryArchitecture) {
  EXPECT_EQ(attune("try --new mine.cu").status, 0);
  for (const char* problem :
       {"", " 'fwd b1 h8/8 q512 k512 d128 bf16 causal-br'", " 'fwd b1 h8/2 q64 k64 d32 f32 causal-tl'"}) {
    const auto outcome = attune(std::string("try mine.cu --resources --json") + problem);
    ASSERT_EQ(outcome.status, 0) << outcome.output;
    const std::vector<json> lines = objects(outcome);
    ASSERT_EQ(lines.size(), 3u);
    const char* archs[] = {"sm_80", "sm_89", "sm_90a"};
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(lines[i].at("arch"), archs[i]);
      EXPECT_GT(lines[i].at("registers"), 10);
      EXPECT_EQ(lines[i].at("spill_store_bytes"), 0);
      EXPECT_EQ(lines[i].at("threads"), 32);
      EXPECT_GT(lines[i].at("blocks_per_sm"), 0);
      EXPECT_GT(lines[i].at("occupancy"), 0.1);
      EXPECT_EQ(lines[i].at("complaint"), "");
    }
  }
  EXPECT_THAT(attune("try mine.cu --resources").output, AllOf(HasSubstr("occupancy"), HasSubstr("sm_90a")));
}

TEST_F(TryKernel, OnACardTheStartingFilePasses) {
  ATTUNE_REQUIRE_GPU();
  attune("try --new mine.cu");
  const auto outcome = attune("try mine.cu --alone --budget 1 --rounds 6");
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("0 failed"), HasSubstr("is the nearest bound"), HasSubstr("card time")));
}

TEST_F(TryKernel, OnACardEveryMistakeIsFound) {
  ATTUNE_REQUIRE_GPU();
  const std::string last = "seen > 0 ? out[i] / sum : 0.f", before = "  float largest = -INFINITY";
  const struct {
    std::string from, to;
  } mistakes[] = {{last, "0.f"},
                  {"if (causal == 2) seen = min(k, row + 1 + k - q);", ""},
                  {last, "row == q - 1 ? __int_as_float(0x7fffffff) : out[i] / sum"},
                  {before, "  if (row == 0) O[static_cast<long long>(gridDim.z) * q * h * D] = 1.f;\n" + before},
                  {before, "  *reinterpret_cast<volatile int*>(16) = 1;\n" + before},
                  {before, "  while (scale > 0.f) __nanosleep(1000);\n" + before}};
  for (const auto& [from, to] : mistakes) {
    const auto outcome = attune("try " + changed(from, to) + " --alone --limit 5");
    EXPECT_EQ(outcome.status, 1) << to << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr("not timed, because it is wrong")) << to;
  }
}

TEST_F(TryKernel, WithoutACardItIsNotPassedOff) {
  attune("try --new mine.cu");
  const auto outcome = attune("try mine.cu --backend cpu");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("registers"), HasSubstr("not checked and not timed: there is no GPU here")));
}

TEST_F(TryKernel, SpillsSharedMemoryAndLaunchesThatCannotBeAreTold) {
  const std::string spilling =
      "// attune kernel\n// entry: f\n// threads: 1024\n// grid: 1\n// shared: 170 * 1024\n// arguments: Q, K, V, O\n"
      "// supports: f32\n"
      "extern \"C\" __global__ void __launch_bounds__(1024) f(const float* Q, const float* K, const float* V, float* "
      "O) {\n"
      "  float x[96];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) x[i] = Q[threadIdx.x + i];\n"
      "  for (int r = 0; r < 100; ++r) {\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < 96; ++i) x[i] = x[i] * x[(i + 1) % 96] + K[r];\n"
      "  }\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) O[threadIdx.x + i] = x[i];\n"
      "}\n";
  write("big.cu", spilling);
  const std::vector<json> lines = objects(attune("try big.cu --resources --json 'fwd b1 h1/1 q8 k8 d64 f32 nolse'"));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GT(lines[0].at("spill_store_bytes"), 0);
  EXPECT_THAT(lines[0].at("complaint").get<std::string>(),
              HasSubstr("174080 bytes of shared memory, and a block may have 166912"));
  EXPECT_EQ(lines[0].at("blocks_per_sm"), 0);
  EXPECT_EQ(lines[2].at("complaint"), "it spills");
  EXPECT_EQ(lines[2].at("blocks_per_sm"), 1);
  const std::string wide = changed("threads: 32", "threads: 64");
  EXPECT_THAT(attune("try " + wide + " --resources").output, HasSubstr("64 threads, and __launch_bounds__ allows 32"));
}

TEST_F(TryKernel, ErrorsOfTheCompilerHaveTheLinesOfTheFile) {
  const std::string file = changed("float score = 0.f;", "float score = nothing;");
  const auto outcome = attune("try " + file);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("changed.cu(33): error: identifier \"nothing\" is undefined"));
}

TEST_F(TryKernel, ACommentThatContradictsTheKernelIsAnError) {
  const auto entry = attune("try " + changed("entry: attention", "entry: another"));
  EXPECT_EQ(entry.status, 2);
  EXPECT_THAT(entry.output, HasSubstr("entry: 'another'; the file's one kernel is"));
  const auto few = attune("try " + changed("scale, causal\n// defines", "scale\n// defines"));
  EXPECT_EQ(few.status, 2);
  EXPECT_THAT(few.output, HasSubstr("arguments: there are 10, and the kernel takes 11"));
  const auto wide = attune("try " + changed("h, hkv, q", "long h, hkv, q"));
  EXPECT_EQ(wide.status, 2);
  EXPECT_THAT(wide.output, HasSubstr("arguments: 'long h' has 8 bytes, and the kernel's parameter 6 has 4"));
  const auto refused =
      attune("try " + changed("f16, bf16, f32, causal", "f16, causal") + " 'fwd b1 h1/1 q8 k8 d64 f32'");
  EXPECT_EQ(refused.status, 3);
  EXPECT_THAT(refused.output, HasSubstr("it does not support f32"));
}

TEST_F(Try, NewFilesOverwriteNothing) {
  EXPECT_EQ(attune("try --new mine.cu").status, 0);
  const auto again = attune("try --new mine.cu");
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("--new is 'mine.cu', which exists"));
  EXPECT_EQ(attune("try --new mine.c").status, 2);
}

TEST_F(Try, WhatCannotBeTriedIsAnError) {
  for (const char* arguments : {"try", "try mine", "try mine.cu", "try mine.so", "try mine.cu --new other.cu"})
    EXPECT_EQ(attune(arguments).status, 2) << arguments;
  write("bare.cu", "__global__ void f() {}\n");
  const auto bare = attune("try bare.cu");
  EXPECT_EQ(bare.status, 2);
  EXPECT_THAT(bare.output, HasSubstr("`attune try --new FILE` writes an example"));
  EXPECT_EQ(attune("bench --backend cpu --source bare.cu --budget 0.1 --rounds 3 'fwd b1 h1/1 q8 k8 d16 f32'").status,
            3)
      << "a kernel runs on a GPU";
}

TEST_F(Try, APluginIsCheckedWithHostileInputsAndTimed) {
  const std::string plugin = test::build() + "/tests/libfaulty_plugin.so";
  const std::string problem = " --backend cpu --rounds 3 --samples 1 --budget 0.2 --json 'fwd b1 h2/2 q20 k30 d16 f32'";
  const auto outcome = attune("try " + plugin + problem);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  const std::vector<json> lines = objects(outcome);
  ASSERT_EQ(lines.size(), 8u + 2u) << "each kind of input, and two rows";
  EXPECT_EQ(lines[4].at("input"), "far-negative");
  EXPECT_EQ(lines[9].at("contender"), "outsider");
  EXPECT_GT(lines[9].at("us"), 0.0);
  const auto wrong = test::shell("ATTUNE_TEST_FAULT=nan " + test::build() + "/attune try " + plugin + problem);
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("not timed, because it is wrong"));
}

}  // namespace
}  // namespace attune::lab
