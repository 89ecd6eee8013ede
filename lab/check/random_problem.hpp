// Random problems for property tests: small, but with every feature, awkward sizes and lengths that miss tile edges.
#pragma once

#include <cstdint>
#include <string>

#include "lab/check/checker.hpp"

namespace attune::lab {

// Problem, input kind and storage from one seed; the kernel is left open. `flops` bounds the work.
Case random_case(uint64_t seed, double flops = 3e6);

// The same of gradients.
Case random_backward_case(uint64_t seed, double flops = 3e6);

}  // namespace attune::lab
