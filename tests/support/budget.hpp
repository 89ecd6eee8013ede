// How thorough a test may be. Under sanitizers, which cost a factor of ten, ATTUNE_TEST_BUDGET is "small".
#pragma once

#include <cstdlib>
#include <string_view>

namespace attune::test {

inline bool small_budget() {
  const char* budget = std::getenv("ATTUNE_TEST_BUDGET");
  return budget != nullptr && std::string_view(budget) == "small";
}

}  // namespace attune::test
