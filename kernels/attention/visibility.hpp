// The host's side of key_range.cuh: what a problem says of rows and keys.
#pragma once

#include "core/problem.hpp"
#include "kernels/attention/key_range.cuh"

namespace attune {

inline device::Visibility visibility_of(const Problem& problem) {
  static_assert(int(device::Alignment::none) == int(Causal::none) &&
                int(device::Alignment::top_left) == int(Causal::top_left) &&
                int(device::Alignment::bottom_right) == int(Causal::bottom_right) && unbounded == -1);
  return {static_cast<device::Alignment>(problem.causal), problem.window_left, problem.window_right};
}

}  // namespace attune
