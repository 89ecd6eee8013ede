#include <cstdlib>

#include "tests/support/paths.hpp"

std::string attune::test::repo() {
  const char* given = std::getenv("ATTUNE_REPO");
  return given != nullptr ? given : ATTUNE_REPO;
}
