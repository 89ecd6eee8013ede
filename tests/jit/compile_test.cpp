// Generated units, the compiler's log, NVRTC and the search for it, cubins.
#include "jit/compile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "jit/cubin.hpp"
#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "jit/paths.hpp"
#include "tests/jit/toy.hpp"

namespace attune::jit {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_COMPILE_ERROR);
    return error.what();
  }
  return "no error";
}

TEST(Unit, ReadsLikeAPerson) {
  EXPECT_EQ(source_of(toy_unit(7)), R"(#include "kernels/test/toy.cuh"

namespace attune::device::toy {

constexpr Variant variant = {.dtype = Dtype::bf16, .number = 7};
constexpr Config config = {.factor = 3};

static_assert(sizeof(Params) == 16, "host and device disagree");
static_assert(__INTADDR__(&((Params*)0)->count) == 8, "host and device disagree");

extern "C" __global__ void __launch_bounds__(32, 1) attn_kernel(const __grid_constant__ Params params) {
  run<variant, config>(params);
}

}
)");
  EXPECT_EQ(label_of(toy_unit(7)), "test/toy {.dtype = Dtype::bf16, .number = 7} {.factor = 3}");
}

TEST(Log, GivesRegistersStackAndSpills) {
  const BuildReport report = read_log(
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas         .     936 bytes stack frame, 1432 bytes spill stores, 2132 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 936 bytes cumulative stack size\n");
  EXPECT_EQ(report.registers, 168);
  EXPECT_EQ(report.stack_bytes, 936);
  EXPECT_EQ(report.spill_store_bytes, 1432);
  EXPECT_EQ(report.spill_load_bytes, 2132);
  EXPECT_FALSE(report.clean());
  EXPECT_TRUE(read_log("ptxas info : Used 8 registers\n 0 bytes stack frame, 0 bytes spill stores\n").clean());
}

TEST(Log, KnowsTheWarningsThatCostSpeed) {
  for (const char* code : {"C7507", "C7508"}) {
    const BuildReport report = read_log(fmt::format(
        "ptxas info    : ({}) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register", code));
    EXPECT_TRUE(report.ignored_setmaxnreg) << code;
    EXPECT_FALSE(report.clean()) << code;
  }
  for (const char* code : {"C7510", "C7511", "C7520"}) {
    const BuildReport report = read_log(fmt::format(
        "ptxas info    : ({}) Potential Performance Loss: wgmma.mma_async instructions are serialized due to", code));
    EXPECT_TRUE(report.serialised_wgmma) << code;
    EXPECT_FALSE(report.clean()) << code;
    EXPECT_EQ(report.warnings.size(), 1u);
  }
  EXPECT_TRUE(read_log("ptxas info    : (C7519) warpgroup.arrive is injected").clean());
}

TEST(Search, ForcedPlaceIsTheOnlyOne) {
  const Scratch scratch;
  write_text(scratch / "libnvrtc.so.13", "");
  const auto forced = [&](const std::string& value) {
    return search_nvrtc([&](const char* name) { return std::string(name) == "ATTUNE_NVRTC" ? value : ""; });
  };
  EXPECT_THAT(forced(scratch / "libnvrtc.so.13").found, ElementsAre(scratch / "libnvrtc.so.13"));
  EXPECT_THAT(forced(scratch.path).found, ElementsAre(scratch / "libnvrtc.so.13"));
  EXPECT_TRUE(forced(scratch / "none").found.empty());
  EXPECT_THAT(forced(scratch / "none").looked, ElementsAre("ATTUNE_NVRTC=" + (scratch / "none")));
}

TEST(Search, FindsLibraryPathToolkitAndPythonPackages) {
  const Scratch scratch;
  for (const char* file :
       {"path/libnvrtc.so.12", "toolkit/lib64/libnvrtc.so.13", "toolkit/lib64/libnvrtc-builtins.so.13.0",
        "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"})
    write_text(scratch / file, "");
  std::filesystem::create_symlink(scratch / "toolkit/lib64/libnvrtc.so.13", scratch / "toolkit/lib64/libnvrtc.so");
  const NvrtcSearch search = search_nvrtc([&](const char* variable) -> std::string {
    const std::string name = variable;
    if (name == "LD_LIBRARY_PATH") return "::" + (scratch / "path") + ":" + (scratch / "none");
    if (name == "CUDA_HOME") return scratch / "toolkit";
    if (name == "VIRTUAL_ENV") return scratch / "venv";
    return "";
  });
  std::vector<std::string> own;
  for (const std::string& file : search.found)
    if (file.starts_with(scratch.path)) own.push_back(file.substr(scratch.path.size() + 1));
  EXPECT_THAT(own, ElementsAre("path/libnvrtc.so.12", "toolkit/lib64/libnvrtc.so",
                               "venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
                               "venv/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12"));
  EXPECT_THAT(search.looked, Contains(scratch / "none"));
  EXPECT_THAT(search.looked, Contains(library_directory() + "/nvrtc"));
}

TEST(Nvrtc, CompilesTheToyForEveryArchitecture) {
  SKIP_WITHOUT_NVRTC();
  const Compiler& compiler = find_nvrtc(INT_MAX);
  const Scratch scratch;
  write_toy(scratch.path);
  const std::string text = source_of(toy_unit(7));
  for (const auto& [arch, number] : {std::pair("sm_80", 80), {"sm_86", 86}, {"sm_89", 89}, {"sm_90a", 90}}) {
    const Compiled compiled = compiler.compile(text, Sources(scratch.path).closure(text), arch);
    EXPECT_TRUE(compiled.report.clean());
    const CubinInfo info = read_cubin(compiled.cubin);
    EXPECT_EQ(info.kernel, entry_name);
    EXPECT_EQ(info.arch, number);
    EXPECT_EQ(info.params_bytes, 16);
    EXPECT_EQ(info.max_threads, 32);
    EXPECT_EQ(info.registers, compiled.report.registers);
    EXPECT_EQ(info.stack_bytes, 0);
    EXPECT_EQ(info.compiler_version, compiler.version());
    EXPECT_GT(info.code_bytes, 0);
  }
}

TEST(Nvrtc, ErrorsCarryTheLog) {
  SKIP_WITHOUT_NVRTC();
  const std::string message = message_of([] { find_nvrtc(INT_MAX).compile("int x = y;", {}, "sm_90a"); });
  EXPECT_THAT(message, HasSubstr("identifier \"y\" is undefined"));
  EXPECT_THAT(message, HasSubstr("sm_90a"));
}

TEST(Nvrtc, HostAndDeviceMustAgreeOnLayout) {
  SKIP_WITHOUT_NVRTC();
  const Scratch scratch;
  write_toy(scratch.path);
  DeviceUnit unit = toy_unit(1);
  unit.layout[1].value = 12;
  const std::string text = source_of(unit);
  EXPECT_THAT(message_of([&] { find_nvrtc(INT_MAX).compile(text, Sources(scratch.path).closure(text), "sm_80"); }),
              HasSubstr("host and device disagree"));
}

TEST(Nvrtc, OlderDriverThanAnyCompilerIsSaid) {
  SKIP_WITHOUT_NVRTC();
  EXPECT_THAT(message_of([] { find_nvrtc(10); }), HasSubstr("this driver loads kernels of CUDA 10 at most"));
}

TEST(Nvrtc, ReportsSpillsStackAndSharedMemoryAsPtxasSees) {
  SKIP_WITHOUT_NVRTC();
  const std::string greedy = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) attn_kernel(float* p) {
  __shared__ float s[100];
  float b[96];
  s[threadIdx.x % 100] = p[0];
  __syncthreads();
  for (int i = 0; i < 96; ++i) b[i] = p[i * 3] + s[i];
  for (int t = 0; t < 10; ++t)
    for (int i = 0; i < 96; ++i) b[i] = b[(i * 7 + 1) % 96] * b[i] + p[i + t];
  for (int i = 0; i < 96; ++i) p[i] = b[i];
})";
  const Compiled compiled = find_nvrtc(INT_MAX).compile(greedy, {}, "sm_90a");
  const CubinInfo info = read_cubin(compiled.cubin);
  EXPECT_GT(compiled.report.spill_store_bytes, 0);
  EXPECT_FALSE(compiled.report.clean());
  EXPECT_EQ(info.stack_bytes, compiled.report.stack_bytes);
  EXPECT_EQ(info.registers, 32);
  EXPECT_EQ(info.static_smem_bytes, 400);
}

TEST(Nvrtc, IgnoredSetmaxnregIsSeen) {
  SKIP_WITHOUT_NVRTC();
  // Without launch bounds the entry has no known register count.
  const std::string text = R"(
extern "C" __global__ void attn_kernel(float* p) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  p[0] = 1;
})";
  EXPECT_TRUE(find_nvrtc(INT_MAX).compile(text, {}, "sm_90a").report.ignored_setmaxnreg);
}

TEST(Cubin, DamagedBytesGiveErrorsOnly) {
  SKIP_WITHOUT_NVRTC();
  const std::string good =
      find_nvrtc(INT_MAX).compile("extern \"C\" __global__ void attn_kernel(int* p) { *p = 1; }", {}, "sm_90a").cubin;
  EXPECT_NO_THROW(read_cubin(good));
  EXPECT_THROW(read_cubin(""), Error);
  EXPECT_THROW(read_cubin("\177ELF"), Error);
  for (size_t length = 0; length < good.size(); length += 7) {
    try {
      read_cubin(good.substr(0, length));
      ADD_FAILURE() << "cut off at " << length << " of " << good.size();
    } catch (const Error&) {
    }
  }
  for (size_t at = 0; at < good.size(); ++at) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x81);
    try {
      read_cubin(flipped);
    } catch (const Error&) {
    }
  }
}

TEST(Cubin, CodeHashFollowsTheCodeAlone) {
  SKIP_WITHOUT_NVRTC();
  const auto hash = [](const std::string& text) {
    return read_cubin(find_nvrtc(INT_MAX).compile(text, {}, "sm_90a").cubin).code_hash;
  };
  const std::string one = hash("extern \"C\" __global__ void attn_kernel(int* p) { *p = 1; }");
  EXPECT_EQ(one, hash("// a comment\n\nextern \"C\" __global__ void attn_kernel(int* q) { q[0] = 2 - 1; }"));
  EXPECT_NE(one, hash("extern \"C\" __global__ void attn_kernel(int* p) { *p = 2; }"));
}

}  // namespace
}  // namespace attune::jit
