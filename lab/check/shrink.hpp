// Makes a failing case small: halves its extents and drops its features for as long as it still fails.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/check/checker.hpp"

namespace attune::lab {

// Smaller problems to try in place of this one, the most promising first. All of them parse.
std::vector<std::string> smaller_problems(const std::string& problem);

// `fails` says whether a case still fails; at most `tries` calls of it.
Case shrink(Case failing, const std::function<bool(const Case&)>& fails, int tries = 200);

}  // namespace attune::lab
