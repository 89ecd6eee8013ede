// What configurations of sm90/fwd cost on an H200, fitted to measured runs (docs/notebook.md). These figures order the
// configurations and leave the results alone, so they are not part of a check's stamp.
#pragma once

#include <cstdint>

namespace attune::sm90::fwd_cost {

// Microseconds for one block of a tile, and for a tile whatever its length: first block, store, the way to the next.
struct Costs {
  double full_block_us, causal_block_us, tile_us;
};

// d: head dim, w: warpgroups, n: keys per block.
inline constexpr Costs d64_w3_n128 = {1.33, 1.44, 1.4};
inline constexpr Costs d64_w4_n64_in_turns = {0.872, 0.90, 1.9};
inline constexpr Costs d64_w4_n64 = {1.01, 0.92, 1.1};
inline constexpr Costs d64_w2_n64 = {0.55, 0.555, 1.6};
inline constexpr Costs d64_w1_n64 = {0.415, 0.42, 0.8};
inline constexpr Costs d128_w2_n128 = {1.45, 1.53, 1.5};
inline constexpr Costs d128_w3_n64 = {1.14, 1.13, 2.2};
inline constexpr Costs d128_w1_n64 = {0.57, 0.60, 0.8};
inline constexpr Costs d256_w2_n64 = {1.40, 1.42, 2.9};

inline constexpr double launch_us = 2.4;   // with the first loads and the last stores, which nothing hides
inline constexpr double beyond_l2 = 1.02;  // of the time, where K and V of a section do not fit into the L2

}  // namespace attune::sm90::fwd_cost
