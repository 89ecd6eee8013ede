// What most tests of the lab need: threads, the CPU backend, and small problems made quickly.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lab/check/backend.hpp"
#include "lab/check/checker.hpp"

namespace attune::lab {

class Lab : public testing::Test {
 protected:
  Lab() : threads_(attune_options{}), executor_(make_cpu_executor()), reference_(make_cpu_reference(threads_)) {}

  Tensors inputs(const std::string& problem, InputKind kind = InputKind::normal, uint64_t seed = 1,
                 Storage storage = Storage::dense) {
    return make_inputs(parse_problem(problem), kind, seed, storage, threads_);
  }

  Checker checker(RowPolicy rows = {}) { return Checker(*executor_, *reference_, threads_, rows); }

  static Case case_of(const std::string& problem, InputKind input = InputKind::normal) {
    Case c;
    c.problem = problem;
    c.input = input;
    return c;
  }

  cpu::Threads threads_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ReferenceSource> reference_;
};

}  // namespace attune::lab
