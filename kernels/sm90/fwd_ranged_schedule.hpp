// How the tiles of a problem are shared out by sm90/fwd_ranged, and which configuration is best.
#pragma once

#include <vector>

#include "gpu/device.hpp"
#include "kernels/sm90/fwd_ranged_variant.hpp"

namespace attune::sm90::ranged {

// How tiles are shared out. Each CTA takes every grid-th tile of an order: one that the host knows, in sections, or the
// list that a launch before makes.
struct Schedule {
  bool listed = false;
  bool splits = false;             // keys, where there are few tiles
  int64_t tiles_m = 0, pairs = 0;  // tiles of one pair of sequence and pack of heads; pairs
  int64_t grid = 0;
  int64_t section = 1;  // pairs walked together, longest tiles first
  double makespan_us = 0;
};

// Parts of keys: so many for each SM, none of them shorter than this.
constexpr int64_t parts_per_sm = 4;
constexpr int64_t least_part_keys = 512;

struct Choice {
  Config config;
  Schedule schedule;
};
std::vector<Choice> best_first(const Problem& problem, const gpu::DeviceProperties& device);

}  // namespace attune::sm90::ranged
