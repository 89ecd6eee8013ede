// What the tests of the cache and of packs share: made-up cubins, files changed byte by byte, and processes of their
// own for what may end one.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "jit/key.hpp"

namespace attune::jit {

// Neither cache nor pack reads what it keeps.
inline const std::string made_up_cubin = "not really machine code " + std::string(5000, 'x');

inline Key key_of(uint8_t number) {
  Key key;
  key.bytes[0] = number;
  return key;
}

inline mode_t mode_of(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

inline std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& item : std::filesystem::directory_iterator(directory)) names.push_back(item.path().filename());
  return names;
}

template <typename T>
void put(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// In a process of its own, which an alarm ends if it waits.
inline void expect_good_end(const std::function<void()>& body) {
  constexpr unsigned patience_seconds = 20;
  EXPECT_EXIT(
      {
        alarm(patience_seconds);
        body();
        _exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace attune::jit
