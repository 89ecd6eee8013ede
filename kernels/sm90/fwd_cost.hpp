// What the configurations of sm90/fwd cost on an H200. Fitted to measured runs, see docs/notebook.md: these numbers say
// which configuration is best and not what it computes, so the stamp of a check does not cover this file.
#pragma once

namespace attune::sm90 {

// Microseconds for one block of a tile, and for a tile whatever its length: first block, store, the way to the next.
struct FwdCost {
  double full_block_us, causal_block_us, tile_us;
};

// A launch, with the first loads and the last stores, which nothing hides.
inline constexpr double fwd_launch_us = 2.4;

namespace fwd_costs {

inline constexpr FwdCost d64_192_rows_128_keys = {1.33, 1.44, 1.4};
inline constexpr FwdCost d64_256_rows_turns = {0.872, 0.90, 1.9};
inline constexpr FwdCost d64_256_rows = {1.01, 0.92, 1.1};
inline constexpr FwdCost d64_128_rows = {0.55, 0.555, 1.6};
inline constexpr FwdCost d64_64_rows = {0.415, 0.42, 0.8};
inline constexpr FwdCost d128_128_rows_128_keys = {1.45, 1.53, 1.5};
inline constexpr FwdCost d128_192_rows = {1.14, 1.13, 2.2};
inline constexpr FwdCost d128_64_rows = {0.57, 0.60, 0.8};
inline constexpr FwdCost d256_128_rows = {1.40, 1.42, 2.9};

}  // namespace fwd_costs

}  // namespace attune::sm90
