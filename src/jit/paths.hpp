// Where things may lie on a user's machine.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attune::jit {

std::string environment(const char* name);                              // "" if it is not set
std::vector<std::string> split(std::string_view text, char separator);  // without empty parts

bool exists(const std::string& path);
bool is_directory(const std::string& path);
std::string absolute(const std::string& path);              // from the working directory of now
std::string resolved(const std::string& path);              // symbolic links followed; the path itself if that fails
std::vector<std::string> matches(const std::string& glob);  // what exists, sorted

std::string library_directory();  // of libattune.so, or of the program it is linked into

// The folders in which Python installations keep their packages: of a virtual environment, of the python3 on PATH, of
// the system, and of whatever package is loaded in this process.
std::vector<std::string> python_package_folders(const std::function<std::string(const char*)>& variable);

}  // namespace attune::jit
