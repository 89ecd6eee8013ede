#include "jit/paths.hpp"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace attune::jit {
namespace {

// "/x/lib/python3.12/site-packages" of "/x/lib/python3.12/site-packages/torch/lib/libtorch.so", or "".
std::string package_folder_of(const std::string& file) {
  for (const std::string_view name : {"/site-packages/", "/dist-packages/"})
    if (const size_t at = file.find(name); at != std::string::npos) return file.substr(0, at + name.size() - 1);
  return {};
}

void add_once(std::vector<std::string>& list, std::string value) {
  if (!value.empty() && std::ranges::find(list, value) == list.end()) list.push_back(std::move(value));
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

bool exists(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path from_root = std::filesystem::absolute(path, error);
  return error ? path : from_root.string();
}

std::string resolved(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(realpath(path.c_str(), nullptr), std::free);
  return real == nullptr ? path : real.get();
}

std::vector<std::string> matches(const std::string& glob_pattern) {
  glob_t result{};
  std::vector<std::string> paths;
  if (glob(glob_pattern.c_str(), 0, nullptr, &result) == 0)
    paths.assign(result.gl_pathv, result.gl_pathv + result.gl_pathc);
  globfree(&result);
  return paths;
}

std::string library_directory() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_directory), &info) == 0 || info.dli_fname == nullptr) return ".";
  std::string file = resolved(info.dli_fname);
  // A program may have been started without a path; the kernel knows the file.
  if (!file.starts_with('/')) file = resolved("/proc/self/exe");
  return file.substr(0, file.rfind('/'));
}

std::vector<std::string> python_package_folders(const std::function<std::string(const char*)>& variable) {
  std::vector<std::string> folders;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* list) {
        add_once(*static_cast<std::vector<std::string>*>(list), package_folder_of(object->dlpi_name));
        return 0;
      },
      &folders);

  std::vector<std::string> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) add_once(prefixes, variable(name));
  for (const std::string& directory : split(variable("PATH"), ':'))
    // Not resolved: the python3 of a virtual environment is a link to another installation's.
    if (exists(directory + "/python3")) add_once(prefixes, directory.substr(0, directory.rfind('/')));
  if (const std::string home = variable("HOME"); !home.empty()) add_once(prefixes, home + "/.local");
  add_once(prefixes, "/usr/local");
  add_once(prefixes, "/usr");
  for (const std::string& prefix : prefixes)
    for (const std::string& folder : matches(prefix + "/lib/python3*/*-packages")) add_once(folders, folder);
  return folders;
}

}  // namespace attune::jit
