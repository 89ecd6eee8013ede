// Where the sources and the build are, also when a build made elsewhere is tested: then ATTUNE_REPO says where the
// sources lie, and the build lies around the running program.
#pragma once

#include <filesystem>
#include <string>

namespace attune::test {

std::string repo();  // repo.cpp

inline std::string build() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

// False where only the programs of a build were brought along.
inline bool build_is_complete() { return std::filesystem::exists(build() + "/CMakeCache.txt"); }

}  // namespace attune::test

#define REQUIRE_COMPLETE_BUILD() \
  if (!attune::test::build_is_complete()) GTEST_SKIP() << "only the programs of the build are here"
