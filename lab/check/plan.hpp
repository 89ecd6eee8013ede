// What `attune check --all` does on one backend: every problem set, hostile input and oracle, within a cost that a
// small machine affords. The tests hold deliberately wrong kernels against the same list.
#pragma once

#include <string>
#include <vector>

#include "lab/check/checker.hpp"

namespace attune::lab {

struct PlannedCheck {
  std::string group;                 // "features", "hostile input", "oracles", or the name of a set
  Case what;                         // the kernel is left open
  std::vector<std::string> kernels;  // to check with it; {""}: the library's own choice
  RowPolicy rows;
  std::string reduced_from;  // the problem of the set that this stands for, "" if it is that problem
};

// How much of a large problem the backend affords.
struct PlanBudget {
  double flops = 0x1p32;            // larger problems of the sets are reduced to this
  double reference_flops = 0x1p28;  // and so many of their rows are compared that the reference costs about this
  double ideal_flops = 0x1p28;      // the same of the rows that Ideal is made for
};

std::vector<PlannedCheck> plan_checks(const Executor& executor, const PlanBudget& budget, uint64_t seed);

}  // namespace attune::lab
