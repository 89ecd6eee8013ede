// The sets of gradients (lab/sets.hpp).
#pragma once

#include "lab/sets.hpp"

namespace attune::lab {

ProblemSet backward();

// The gradients of those problems of a set of forward passes that are in bf16.
ProblemSet backward_of(const ProblemSet& forward, std::string name, std::string about);

}  // namespace attune::lab
