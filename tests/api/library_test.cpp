// The shared library and its header as files: what it exports, what it needs, its ABI, and that it installs, links and
// runs. A sanitizer's build is another library, so these are not part of it.
#include "tests/support/sanitizers.hpp"

#ifndef ATTUNE_UNDER_SANITIZERS

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/support/paths.hpp"
#include "tests/support/shell.hpp"

namespace attune {
namespace {

using test::Outcome;
using test::shell;
using testing::HasSubstr;

const std::string library = test::build() + "/libattune.so";
const std::string headers = test::repo() + "/include";

// The last word of each line that holds `mark`.
std::set<std::string> last_words(const std::string& text, const std::string& mark) {
  std::set<std::string> words;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(mark) != line.npos) words.insert(line.substr(line.find_last_of(" [") + 1));
  return words;
}

TEST(Library, ExportsTheCInterfaceAndNothingElse) {
  REQUIRE_PROGRAM("nm");
  const Outcome nm = shell("nm -D --defined-only " + library);
  ASSERT_EQ(nm.status, 0) << nm.output;
  EXPECT_EQ(last_words(nm.output, " "),
            (std::set<std::string>{"attune_abi_version", "attune_backward", "attune_backward_explain",
                                   "attune_backward_prepare", "attune_backward_workspace_bytes", "attune_create",
                                   "attune_destroy", "attune_explain", "attune_forward", "attune_last_error",
                                   "attune_merge", "attune_prepare", "attune_workspace_bytes"}));
}

TEST(Library, NeedsOnlyWhatEverySystemHas) {
  REQUIRE_PROGRAM("readelf");
  const Outcome readelf = shell("readelf -d " + library);
  ASSERT_EQ(readelf.status, 0) << readelf.output;
  const std::set<std::string> allowed{"libc.so.6]", "libm.so.6]", "libstdc++.so.6]", "libgcc_s.so.1]",
                                      "ld-linux-x86-64.so.2]"};
  const auto needed = last_words(readelf.output, "(NEEDED)");
  EXPECT_FALSE(needed.empty());
  for (const std::string& name : needed) EXPECT_TRUE(allowed.contains(name)) << name;
  EXPECT_EQ(last_words(readelf.output, "(SONAME)"), std::set<std::string>{"libattune.so.1]"});
}

// tests/api/abi/dump.sh makes the baseline anew.
TEST(Library, AbiIsThatOfTheBaseline) {
  REQUIRE_PROGRAM("abidiff");
  REQUIRE_PROGRAM("gcc");
  const test::TemporaryDirectory directory;
  const std::string current = directory.path() / "libattune.abi";
  const Outcome dump = shell(test::repo() + "/tests/api/abi/dump.sh " + headers + " " + current);
  ASSERT_EQ(dump.status, 0) << dump.output;
  const Outcome same = shell("abidiff " + test::repo() + "/tests/api/abi/libattune.abi " + current);
  EXPECT_EQ(same.status, 0) << same.output;

  // The check must be able to fail: a field put in the middle of a struct.
  const std::string changed = directory.path() / "include";
  std::filesystem::copy(headers, changed, std::filesystem::copy_options::recursive);
  const Outcome edit =
      shell("sed -i 's/^  int64_t heads_q;$/  int64_t heads_q, spoilt;/' " + changed + "/attune/attune.h");
  ASSERT_EQ(edit.status, 0) << edit.output;
  ASSERT_EQ(shell(test::repo() + "/tests/api/abi/dump.sh " + changed + " " + current).status, 0);
  EXPECT_NE(shell("abidiff " + test::repo() + "/tests/api/abi/libattune.abi " + current).status, 0);
}

TEST(Library, TheDumpNamesEveryExportedFunction) {
  std::ifstream baseline(test::repo() + "/tests/api/abi/libattune.abi");
  std::stringstream text;
  text << baseline.rdbuf();
  for (const char* name :
       {"attune_abi_version", "attune_backward", "attune_backward_explain", "attune_backward_prepare",
        "attune_backward_workspace_bytes", "attune_create", "attune_destroy", "attune_explain", "attune_forward",
        "attune_last_error", "attune_merge", "attune_prepare", "attune_workspace_bytes"})
    EXPECT_THAT(text.str(), HasSubstr("elf-symbol name='" + std::string(name) + "'"));
}

TEST(Header, IsCleanC99WithTwoIncludes) {
  REQUIRE_PROGRAM("gcc");
  const Outcome c99 = shell(
      "echo '#include <attune/attune.h>\nint x;' | gcc -std=c99 -pedantic -Wall -Wextra -Wconversion -Werror"
      " -fsyntax-only -x c -I" +
      headers + " -");
  EXPECT_EQ(c99.status, 0) << c99.output;
  const Outcome cxx98 = shell(
      "echo '#include <attune/attune.h>\nint x;' | g++ -std=c++11 -pedantic -Wall -Wextra -Werror"
      " -fsyntax-only -x c++ -I" +
      headers + " -");
  EXPECT_EQ(cxx98.status, 0) << cxx98.output;
  const Outcome includes = shell("grep '#include' " + headers + "/attune/attune.h");
  EXPECT_EQ(includes.output, "#include <stddef.h>\n#include <stdint.h>\n");
}

void expect_example_output(const Outcome& run) {
  EXPECT_EQ(run.status, 0) << run.output;
  float v = 0, o = 1;
  ASSERT_EQ(std::sscanf(run.output.c_str(), "v[0] = %f, o[0] = %f", &v, &o), 2) << run.output;
  EXPECT_NE(v, 0);
  EXPECT_EQ(o, v) << "the first row sees the first key only";
}

TEST(Examples, Run) {
  expect_example_output(shell(test::build() + "/examples/example_c"));
  expect_example_output(shell(test::build() + "/examples/example_cpp"));
}

// A project of its own, outside this tree, that finds the installed package.
TEST(Package, InstallsAndIsFound) {
  REQUIRE_COMPLETE_BUILD();
  REQUIRE_PROGRAM("cmake");
  REQUIRE_PROGRAM("g++");
  const test::TemporaryDirectory directory;
  const std::string prefix = directory.path() / "prefix", consumer = directory.path() / "consumer";
  const Outcome install = shell("cmake --install " + test::build() + " --prefix " + prefix + " --component library");
  ASSERT_EQ(install.status, 0) << install.output;

  std::filesystem::create_directory(consumer);
  for (const char* example : {"attention.c", "attention.cpp"})
    std::filesystem::copy_file(test::repo() + "/examples/" + example, consumer + "/" + example);
  std::ofstream(consumer + "/CMakeLists.txt") << "cmake_minimum_required(VERSION 3.25)\n"
                                                 "project(consumer LANGUAGES C CXX)\n"
                                                 "set(CMAKE_CXX_STANDARD 20)\n"
                                                 "find_package(attune 0.1 REQUIRED)\n"
                                                 "add_executable(in_c attention.c)\n"
                                                 "target_link_libraries(in_c PRIVATE attune::attune)\n"
                                                 "add_executable(in_cpp attention.cpp)\n"
                                                 "target_link_libraries(in_cpp PRIVATE attune::attune)\n";
  const Outcome build = shell("cmake -S " + consumer + " -B " + consumer + "/build -DCMAKE_PREFIX_PATH=" + prefix +
                              " && cmake --build " + consumer + "/build");
  ASSERT_EQ(build.status, 0) << build.output;
  expect_example_output(shell(consumer + "/build/in_c"));
  expect_example_output(shell(consumer + "/build/in_cpp"));
  EXPECT_THAT(shell("ldd " + consumer + "/build/in_c").output, HasSubstr(prefix)) << "not the installed library";
}

}  // namespace
}  // namespace attune

#endif
