// What cmake --install gives of the lab: the command, its engine and header, and enough to judge code from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/budget.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Installation, HasTheLab) {
  if (test::small_budget()) GTEST_SKIP() << "a sanitizer's library is none to install";
  REQUIRE_COMPLETE_BUILD();
  REQUIRE_PROGRAM("cmake");
  REQUIRE_PROGRAM("cc");
  const test::TemporaryDirectory place;
  const std::string prefix = (place.path() / "prefix").string();
  for (const char* component : {"library", "command"}) {
    const auto install =
        test::shell("cmake --install " + test::build() + " --prefix " + prefix + " --component " + component);
    ASSERT_EQ(install.status, 0) << install.output;
  }
  const auto check = test::shell(prefix + "/bin/attune check --backend cpu --plugin " + test::build() +
                                 "/tests/libfaulty_plugin.so 'fwd b1 h2/2 q20 k30 d16 f32'");
  EXPECT_EQ(check.status, 0) << check.output;
  EXPECT_THAT(check.output, HasSubstr("1 check passed, 0 failed"));
  EXPECT_TRUE(fs::exists(prefix + "/share/attune/python/attune/lab/trial.py"));

  const std::string source = (place.path() / "host.c").string(), host = (place.path() / "host").string();
  std::ofstream(source)
      << "#include <attune/lab_engine.h>\n"
         "int main(void) { return attune_lab_engine_version() == ATTUNE_LAB_ENGINE_VERSION ? 0 : 1; }\n";
  const auto engine = test::shell("find " + prefix + " -name libattune_lab_engine.so");
  const std::string path = engine.output.substr(0, engine.output.find('\n'));
  const auto built = test::shell("cc -std=c99 -Wall -Werror -I " + prefix + "/include " + source + " " + path +
                                 " -Wl,-rpath," + fs::path(path).parent_path().string() + " -o " + host);
  ASSERT_EQ(built.status, 0) << built.output;
  EXPECT_EQ(test::shell(host).status, 0);
}

}  // namespace
}  // namespace attune::lab
