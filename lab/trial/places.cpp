#include "lab/trial/places.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "core/error.hpp"

namespace attune::lab {

namespace fs = std::filesystem;

namespace {

std::vector<std::string>& command() {
  static std::vector<std::string> words{"/proc/self/exe"};
  return words;
}

}  // namespace

fs::path own_folder() {
  Dl_info found{};
  const bool in_library = dladdr(reinterpret_cast<const void*>(&own_folder), &found) != 0 &&
                          std::string_view(found.dli_fname).ends_with(".so");
  return (in_library ? fs::absolute(found.dli_fname) : fs::read_symlink("/proc/self/exe")).parent_path();
}

const std::vector<std::string>& own_command() { return command(); }
void set_own_command(std::vector<std::string> words) { command() = std::move(words); }

std::string library_in(const fs::path& folder, const std::string& name, const std::string& needs) {
  const char* given = std::getenv("ATTUNE_LAB_LIBRARY_DIR");
  for (const fs::path& place : {fs::path(given != nullptr ? given : folder.c_str()), folder, folder / "../lib",
                                folder / "../lib64", folder / "../lib/x86_64-linux-gnu"})
    if (fs::exists(place / name)) return fs::weakly_canonical(place / name).string();
  fail(ATTUNE_NO_DEVICE,
       "{} needs {}, which is neither in {} nor in ../lib; ATTUNE_LAB_LIBRARY_DIR may name its folder", needs, name,
       folder.string());
}

std::string package_beside(const fs::path& folder) {
  for (const fs::path& place : {folder / "../python", folder / "../share/attune/python", folder / ".."})
    if (fs::exists(place / "attune/lab/__main__.py")) return fs::weakly_canonical(place).string();
  return "";
}

std::string python_path_with(const std::string& folder) {
  const char* before = std::getenv("PYTHONPATH");
  if (before == nullptr || folder.empty() || std::string(before).starts_with(folder))
    return folder.empty() || before == nullptr ? folder : before;
  return fmt::format("{}:{}", folder, before);
}

void show_package_to_python(const std::string& folder) {
  if (const std::string path = python_path_with(folder); !path.empty()) setenv("PYTHONPATH", path.c_str(), 1);
}

}  // namespace attune::lab
