// What a GPU cannot be quicker than at a problem: three ceilings, each alone.
#pragma once

#include <string>
#include <vector>

#include "core/problem.hpp"
#include "lab/measure/ceilings.hpp"

namespace attune::lab {

struct Bound {
  std::string name;    // matmul, exp or memory
  double seconds = 0;  // that the problem takes at that ceiling
};

// Those whose ceilings were measured, the one that takes longest first: the nearest to whatever is measured.
std::vector<Bound> bounds_of(const Problem& problem, const std::vector<Ceiling>& ceilings, int sm_count);

// "memory 41 %, exp 20 %, matmul 12 %; memory is the nearest bound". "" where no ceiling is known.
std::string bounds_text(const std::vector<Bound>& bounds, double measured_seconds);

}  // namespace attune::lab
