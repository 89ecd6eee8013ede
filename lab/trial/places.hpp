// Where the parts of the lab lie that are not in this program: beside it in a build, in ../lib of an installation, in
// the package of a wheel.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace attune::lab {

// In which this program lies, or the library that has the command in it.
std::filesystem::path own_folder();

// How another process of this command is started; {"/proc/self/exe"} until a host that is not `attune` says otherwise.
const std::vector<std::string>& own_command();
void set_own_command(std::vector<std::string> command);

// The file of that name in the folder that ATTUNE_LAB_LIBRARY_DIR names, in `folder` or in ../lib of it. Throws
// ATTUNE_NO_DEVICE, which says what `needs` it.
std::string library_in(const std::filesystem::path& folder, const std::string& name, const std::string& needs);

// The folder with the Python package, of the source tree or the wheel that `folder` lies in; "": Python finds it.
std::string package_beside(const std::filesystem::path& folder);

// PYTHONPATH with the folder before what it has; "" without a folder.
std::string python_path_with(const std::string& folder);
// Sets it, for the processes that this one starts.
void show_package_to_python(const std::string& folder);

}  // namespace attune::lab
