// What configurations of sm90/fwd_small cost on an H200, fitted to measured runs (docs/notebook.md). These figures
// order the configurations and leave the results alone, so they are not part of a check's stamp.
#pragma once

namespace attune::sm90::fwd_small_cost {

// Microseconds for a tile whatever its length, with its share of the launch, and for a round of blocks, one for each
// key group. CTAs that run beside each other on an SM.
struct Costs {
  double tile_us, round_us;
  int ctas_per_sm = 1;
};

// d: head dim, r: row groups, k: key groups, n: keys per block, s: stages, c: CTAs of a cluster.
inline constexpr Costs d64_r1_k2_n64_s1 = {2.4, 0.7};
inline constexpr Costs d64_r1_k2_n128_s1_c2 = {3.2, 1.16};
inline constexpr Costs d64_r1_k2_n64_s4 = {2.5, 0.69};
inline constexpr Costs d64_r1_k4_n64_s2 = {3.7, 0.96};
inline constexpr Costs d64_r2_k2_n64_s3 = {2.75, 1.0};
inline constexpr Costs d64_r1_k2_n64_s3_paired = {2.7, 0.71, 2};
inline constexpr Costs d64_r1_k2_n64_s4_c4 = {3.2, 0.65};
inline constexpr Costs d64_r1_k2_n64_s4_c8 = {3.6, 0.645};
inline constexpr Costs d64_r1_k1_n64_s8_c16 = {3.45, 0.5};
inline constexpr Costs d128_r1_k2_n64_s3 = {3.35, 0.86};
inline constexpr Costs d128_r1_k1_n64_s3 = {2.95, 0.58, 2};
inline constexpr Costs d128_r1_k1_n64_s3_paired = {3.05, 0.58, 2};
inline constexpr Costs d128_r1_k2_n64_s2_c4 = {3.65, 0.86};
inline constexpr Costs d128_r1_k2_n64_s2_c8 = {4.4, 0.86};
inline constexpr Costs d128_r1_k1_n64_s4_c16 = {4.55, 0.62};

// A CTA with another one on its SM, over one that is alone.
inline constexpr double slower_beside_another = 1.4;
// Paired CTAs, of what each would take alone: what the one beside it adds, and what a start and a round of a crowd
// take.
inline constexpr double held_up = 0.4, crowded_start = 0.6, crowded_round = 0.85;

}  // namespace attune::sm90::fwd_small_cost
