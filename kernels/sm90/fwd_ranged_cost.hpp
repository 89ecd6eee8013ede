// What the configurations of sm90/fwd_ranged cost on an H200. Fitted to measured runs, see docs/notebook.md: these
// numbers say which configuration is best and not what it computes, so the stamp of a check does not cover this file.
#pragma once

namespace attune::sm90::ranged {

// Microseconds of a CTA for one block of keys, with the head dims that its class has room for, and for a tile whatever
// its length: first block, store, the way to the next.
struct RangedCost {
  double block_us, tile_us;
};

// A launch, with the first loads and the last stores, which nothing hides; the launches before and after it.
inline constexpr double launch_us = 2.4, listing_us = 4, combining_us = 5;

// How much of a block's time does not shrink with the head dims; how much longer capped scores take, and scores whose
// terms come straight from memory; windows and listed tiles, where two warpgroups take turns; and a window's tile.
struct ClassCost {
  double fixed_share, softcap;
};
inline constexpr ClassCost up_to_64 = {0.76, 1.3}, up_to_128 = {0.33, 1.4}, wider = {0.15, 1.14};
inline constexpr double direct_terms = 3, ragged_with_turns = 1.09, window_tile_us = 0.4;

// K and V of a single tile of rows are read once, from memory: bytes a microsecond that an SM can read.
inline constexpr double memory_bytes_per_us = 3.2e4;

// The dense kernels keep what both would take about as long for.
inline constexpr double dense_margin = 1.2;

namespace ranged_costs {

inline constexpr RangedCost d64_128_rows_128_keys = {0.92, 1.5}, d64_192_rows_96_keys = {0.93, 1.6},
                            d64_192_rows_64_keys = {0.68, 1.2}, d64_128_rows_64_keys = {0.56, 1.6},
                            d64_pair_128_keys = {0.955, 1.8}, d64_pair_64_keys = {0.58, 1.7};
inline constexpr RangedCost d128_128_rows_128_keys = {1.43, 1.5}, d128_192_rows_64_keys = {1.03, 2.0},
                            d128_128_rows_64_keys = {0.83, 1.5}, d128_pair_64_keys = {0.9, 1.7};
inline constexpr RangedCost d192_128_rows_128_keys = {1.84, 2.5}, d192_128_rows_112_keys = {1.72, 2.5},
                            d192_64_rows = {0.75, 1.5};
inline constexpr RangedCost d192_192_rows_96_keys = {1.82, 2.5}, d192_192_rows_80_keys = {1.58, 2.5},
                            d192_192_64_rows = {0.95, 1.5};
inline constexpr RangedCost d256_128_rows_64_keys = {1.30, 2.9}, d256_128_rows_80_keys = {1.66, 2.9},
                            d256_64_rows = {0.97, 1.8};
inline constexpr RangedCost d512_64_rows = {1.30, 5};

// With terms.
inline constexpr RangedCost d64_terms_128_rows_128_keys = {1.42, 2.0}, d64_terms_192_rows = {1.0, 1.7},
                            d64_terms_128_rows_64_keys = {0.74, 1.7}, d64_terms_pair = {0.68, 1.8};
inline constexpr RangedCost d128_terms_128_rows_128_keys = {2.05, 2.5}, d128_terms_128_rows_64_keys = {1.10, 1.7},
                            d128_terms_single_q = {1.15, 6}, d128_terms_pair = {1.5, 1.8};
inline constexpr RangedCost d192_terms_128_rows = {1.4, 2.9}, d192_terms_64_rows = {0.8, 1.8};
inline constexpr RangedCost d256_terms_128_rows = {1.0, 3.2}, d256_terms_64_rows = {0.7, 2.0};
inline constexpr RangedCost d512_terms_64_rows = {1.5, 5};

}  // namespace ranged_costs

}  // namespace attune::sm90::ranged
