// The sets of the models people run (lab/sets.hpp).
#pragma once

#include "lab/sets.hpp"

namespace attune::lab {

ProblemSet models();
ProblemSet models_backward();

// What a problem of the set `models` is a call of, in a few words; "" for others.
std::string model_of(std::string_view problem);

}  // namespace attune::lab
