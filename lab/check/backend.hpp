// A place where kernels can be checked: how to run them, where the truth comes from, and how much of it is affordable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lab/check/executor.hpp"
#include "lab/check/plan.hpp"
#include "lab/check/reference.hpp"

namespace attune::lab {

struct Backend {
  std::string name;  // "cpu"
  std::unique_ptr<Executor> executor;
  std::unique_ptr<ReferenceSource> reference;
  RowPolicy rows;         // of a check that was asked for
  PlanBudget all_budget;  // of `check --all`
};

// Every backend present on this machine, the best one first. `threads` must outlive them.
std::vector<Backend> make_backends(cpu::Threads& threads);

}  // namespace attune::lab
