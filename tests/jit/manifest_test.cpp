// The promised kernels: all of kernels/manifest.toml compiles for its architectures and stays under its ceilings, and
// the table in docs/ says what they really use.
#include "lab/pack/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "lab/pack/promised.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string complaint_about(std::string_view toml) {
  try {
    read_manifest(toml);
  } catch (const Error& error) {
    EXPECT_EQ(error.status, ATTUNE_INVALID_ARGUMENT);
    return error.what();
  }
  return "no error";
}

TEST(Manifest, ExpandsRows) {
  const std::vector<Promise> promises = read_manifest(R"(
[[kernel]]
kernel = "any/fwd"
problem = "fwd b1 h1/1 q64 k64 d{d} {dtype}"
each = { d = ["64", "128"], dtype = ["f16", "bf16"] }
archs = ["sm_80", "sm_90a"]
registers = 100
smem_bytes = 5000
blocks_per_sm = 2
[[kernel]]
kernel = "any/merge"
problem = "merge p2 b1 h1 q64 d64 f16"
archs = ["sm_90a"]
registers = 64
smem_bytes = 8192
blocks_per_sm = 1
packed = false
)");
  ASSERT_EQ(promises.size(), 9u);
  EXPECT_EQ(promises[0].problem, "fwd b1 h1/1 q64 k64 d64 f16");
  EXPECT_EQ(promises[0].arch, "sm_80");
  EXPECT_EQ(promises[0].ceilings.registers, 100);
  EXPECT_EQ(promises[0].ceilings.blocks_per_sm, 2);
  EXPECT_TRUE(promises[0].packed);
  EXPECT_THAT(promises[0].unit.variant, HasSubstr("Dtype::f16"));
  EXPECT_EQ(promises[8].kernel, "any/merge");
  EXPECT_FALSE(promises[8].packed);
}

TEST(Manifest, SaysWhatIsWrongAndWhere) {
  const std::string rest = "archs = [\"sm_80\"]\nregisters = 1\nsmem_bytes = 1\nblocks_per_sm = 1\n";
  EXPECT_THAT(complaint_about("x = "), HasSubstr("line 1"));
  EXPECT_THAT(complaint_about("x = 1"), HasSubstr("no [[kernel]]"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"none\"\n" + rest), HasSubstr("no GPU kernel is called 'none'"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"any/merge\"\nspeed = 1\n" + rest), HasSubstr("line 3"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"any/fwd\"\nproblem = \"fwd b1 h1/1 q64 k64 d64 f16\"\n"
                              "configs = \"some\"\n" +
                              rest),
              HasSubstr("configs is 'some', not best or all"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"any/merge\"\n"), HasSubstr("registers must be a number"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"any/fwd\"\nproblem = \"fwd\"\neach = { d = [\"1\"] }\n" + rest),
              HasSubstr("the problem has no {d}"));
  EXPECT_THAT(complaint_about("[[kernel]]\nkernel = \"any/merge\"\narchs = [\"sm_1\"]\nregisters = 1\nsmem_bytes = 1\n"
                              "blocks_per_sm = 1\n"),
              HasSubstr("sm_1"));
}

PromisedKernel harmless() {
  PromisedKernel kernel;
  kernel.promise.kernel = "test/toy";
  kernel.promise.arch = "sm_90a";
  kernel.promise.ceilings = {100, 1000, 2};
  kernel.promise.unit.params_bytes = 16;
  auto built = std::make_shared<jit::Built>();
  built->info.registers = 100;
  built->info.params_bytes = 16;
  kernel.built = built;
  kernel.smem_bytes = 1000;
  kernel.blocks_per_sm = 2;
  return kernel;
}

TEST(Manifest, EveryCeilingIsHeld) {
  EXPECT_THAT(broken_ceilings(harmless()), IsEmpty());
  const auto broken = [](auto change) {
    PromisedKernel kernel = harmless();
    auto built = std::make_shared<jit::Built>(*kernel.built);
    change(kernel, *built);
    kernel.built = built;
    const std::vector<std::string> lines = broken_ceilings(kernel);
    EXPECT_EQ(lines.size(), 1u);
    return lines.empty() ? "nothing" : lines[0];
  };
  EXPECT_THAT(broken([](auto&, auto& b) { b.report.spill_store_bytes = 4; }), HasSubstr("spills 4 bytes"));
  EXPECT_THAT(broken([](auto&, auto& b) { b.info.stack_bytes = 8; }), HasSubstr("stack frame of 8"));
  EXPECT_THAT(broken([](auto&, auto& b) { b.report.ignored_setmaxnreg = true; }), HasSubstr("setmaxnreg is ignored"));
  EXPECT_THAT(broken([](auto&, auto& b) { b.report.serialised_wgmma = true; }), HasSubstr("wgmma is serialised"));
  EXPECT_THAT(broken([](auto&, auto& b) { b.info.registers = 101; }), HasSubstr("101 registers"));
  EXPECT_THAT(broken([](auto& k, auto&) { k.smem_bytes = 1001; }), HasSubstr("1001 bytes of shared memory"));
  EXPECT_THAT(broken([](auto& k, auto&) { k.blocks_per_sm = 1; }), HasSubstr("1 blocks per SM"));
  EXPECT_THAT(broken([](auto& k, auto&) { k.promise.unit.role_registers = 65537; }), HasSubstr("65537 registers"));
  EXPECT_THAT(broken([](auto&, auto& b) { b.info.params_bytes = 24; }), HasSubstr("24 bytes of parameters"));
}

class Promised : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    if (!jit::find_nvrtc(INT_MAX).measured())
      GTEST_SKIP() << "ceilings hold for the NVRTC of kernels/compiler.toml; this one is "
                   << jit::find_nvrtc(INT_MAX).version();
    manifest = test::repo() + "/kernels/manifest.toml";
    if (!std::filesystem::exists(manifest)) GTEST_SKIP() << "there is no " << manifest;
    jit::StoreOptions options = jit::store_options_from_environment();
    options.pack_directories = {};
    jit::Store store(options);
    kernels = compile_promised(read_manifest_file(manifest), store);
  }

  std::string manifest;
  std::vector<PromisedKernel> kernels;
};

TEST_F(Promised, KernelsStayUnderTheirCeilings) {
  EXPECT_GT(kernels.size(), 100u);
  for (const PromisedKernel& kernel : kernels) {
    EXPECT_THAT(broken_ceilings(kernel), ElementsAre());
    EXPECT_TRUE(kernel.built->measured);
  }

  std::ifstream file(test::repo() + "/docs/kernel-resources.md");
  std::ostringstream written;
  written << file.rdbuf();
  EXPECT_EQ(written.str(), resources_table(kernels))
      << "docs/kernel-resources.md is out of date: run attune pack --resources docs/kernel-resources.md";

  // Frozen into packs they are found again, all of them, without a compiler.
  const jit::Scratch scratch;
  const std::vector<std::string> files = write_packs(kernels, scratch.path);
  EXPECT_EQ(files.size(), 4u);
  jit::StoreOptions options = jit::store_options_from_environment();
  options.cache_directory = "";
  options.pack_directories = {scratch.path};
  options.compile = false;
  jit::Store store(options);
  for (const PromisedKernel& kernel : kernels)
    if (kernel.promise.packed) {
      EXPECT_EQ(store.get(kernel.promise.unit, kernel.promise.arch)->cubin, kernel.built->cubin);
    }
}

}  // namespace
}  // namespace attune::lab
