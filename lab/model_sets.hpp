// The sets of the models people run (lab/sets.hpp).
#pragma once

#include "lab/sets.hpp"

namespace attune::lab {

ProblemSet models();
ProblemSet models_backward();

}  // namespace attune::lab
