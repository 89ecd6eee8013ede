// What can be known of the device code without a GPU: it compiles, also with bounded waits, and ptxas has no
// complaints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <regex>
#include <set>

#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "tests/jit/toy.hpp"
#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

TEST(PtxCompile, EveryTestKernelIsClean) {
  SKIP_WITHOUT_NVRTC();
  std::set<std::string> files;
  for (const jit::DeviceUnit& unit : all_units()) {
    const jit::BuildReport& report = compiled(unit, Waits::plain).report;
    EXPECT_TRUE(report.clean()) << label_of(unit) << ": " << report.spill_store_bytes << " bytes spilled, "
                                << report.stack_bytes << " bytes of stack" << (report.warnings.empty() ? "" : "\n")
                                << testing::PrintToString(report.warnings);
    files.insert(unit.file);
  }
  for (const jit::SourceFile* file = test_sources; !file->path.empty(); ++file)
    EXPECT_TRUE(files.contains(file->path)) << file->path << " is in no unit";
}

// A name counts as used where it is followed by arguments, or by template arguments.
TEST(PtxCompile, EveryInstructionIsTested) {
  std::string wrappers, tests;
  for (const jit::EmbeddedFile* file = jit::embedded_files; file->path != nullptr; ++file)
    if (std::string_view(file->path).starts_with("kernels/common/") && std::strstr(file->text, "asm") != nullptr)
      wrappers += jit::without_comments(file->text);
  for (const jit::SourceFile* file = test_sources; !file->path.empty(); ++file)
    tests += jit::without_comments(file->text);
  const auto uses = [](const std::string& text, const std::string& name) {
    const std::regex use("\\b" + name + "(<[^>]*>)?\\(");
    return std::distance(std::sregex_iterator(text.begin(), text.end(), use), {});
  };
  const std::regex definition("ATTUNE_DEVICE [a-z0-9_]+ ([a-z0-9_]+)\\(");
  int found = 0;
  for (std::sregex_iterator match(wrappers.begin(), wrappers.end(), definition), end; match != end; ++match, ++found) {
    const std::string name = (*match)[1];
    // Or it is a part of another: try_wait of wait.
    EXPECT_TRUE(uses(tests, name) > 0 || uses(wrappers, name) > 1) << name;
  }
  EXPECT_GT(found, 50);
}

TEST(PtxCompile, BoundedWaitsCarryTheirNames) {
  SKIP_WITHOUT_NVRTC();
  const auto holds = [](const jit::Compiled& made, const char* name) {
    return made.cubin.find(name) != std::string::npos;
  };
  for (const jit::DeviceUnit& unit : {warp_unit(), tma_unit(), sync_unit(), cluster_unit()})
    EXPECT_TRUE(holds(compiled(unit, Waits::bounded), "waits for ever on")) << label_of(unit);
  EXPECT_TRUE(holds(compiled(sync_unit(), Waits::bounded), "never_full"));
  EXPECT_FALSE(holds(compiled(sync_unit(), Waits::plain), "waits for ever on")) << "a plain wait prints nothing";
}

TEST(PtxCompile, RegistersMoveBetweenWarpgroups) {
  SKIP_WITHOUT_NVRTC();
  const jit::BuildReport& report = compiled(sync_unit(), Waits::plain).report;
  EXPECT_EQ(report.registers, 168) << "65536 / 384, in steps of 8: what the launch gives to each thread";
  EXPECT_GT(device::test_sync::held_values, report.registers);
  EXPECT_FALSE(report.spills());
}

TEST(PtxCompile, EveryHeaderStandsAlone) {
  SKIP_WITHOUT_NVRTC();
  const jit::Compiler& compiler = jit::find_nvrtc(INT_MAX);
  const jit::Sources sources = jit::Sources::from_environment();
  int headers = 0;
  for (const jit::EmbeddedFile* file = jit::embedded_files; file->path != nullptr; ++file) {
    if (!std::string_view(file->path).starts_with("kernels/common/")) continue;
    ++headers;
    const std::string text =
        fmt::format("#include \"{}\"\nextern \"C\" __global__ void {}() {{}}\n", file->path, jit::entry_name);
    for (const char* arch : {"sm_80", "sm_90a"})
      for (const char* waits : {"", "#define ATTUNE_BOUNDED_WAITS\n"})
        EXPECT_NO_THROW(compiler.compile(waits + text, sources.closure(text), arch)) << file->path << " " << arch;
  }
  EXPECT_GE(headers, 10);
}

}  // namespace
}  // namespace attune::ptx
