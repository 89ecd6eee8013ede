// What is selected for the problems of the built-in sets, on a typical card of each architecture: docs/selection.md. It
// is committed, so that a change which silently drops users to another kernel shows in a diff.
#pragma once

#include <string>

namespace attune::lab {

std::string selection_table();

}  // namespace attune::lab
