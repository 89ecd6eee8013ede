// Where the parts of the lab lie that are not in this program: beside it in a build, in ../lib of an installation, in
// the package of a wheel.
#pragma once

#include <filesystem>
#include <string>

namespace attune::lab {

std::filesystem::path own_folder();  // in which this program lies

// The file of that name in the folder that ATTUNE_LAB_LIBRARY_DIR names, in `folder` or in ../lib of it. Throws
// ATTUNE_NO_DEVICE, which says what `needs` it.
std::string library_in(const std::filesystem::path& folder, const std::string& name, const std::string& needs);

// The folder with the Python package, of the source tree or the wheel that `folder` lies in; "": Python finds it.
std::string package_beside(const std::filesystem::path& folder);

// Puts it before PYTHONPATH, for the processes that this one starts.
void show_package_to_python(const std::string& folder);

}  // namespace attune::lab
