// Options of a context or pool with so many threads.
#pragma once

#include "attune/attune.h"

namespace attune::test {

inline attune_options with_threads(int threads) {
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = threads;
  return options;
}

}  // namespace attune::test
