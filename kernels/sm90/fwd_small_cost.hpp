// What the configurations of sm90/fwd_small cost on an H200. Fitted to measured runs, see docs/notebook.md: these
// numbers say which configuration is best and not what it computes, so the stamp of a check does not cover this file.
#pragma once

namespace attune::sm90 {

// Microseconds for a tile whatever its length, with its share of the launch, and for a round of blocks, one for each
// key group.
struct FwdSmallCost {
  double tile_us, round_us;
};

namespace fwd_small_costs {

// Groups: of rows x of keys.
inline constexpr FwdSmallCost d64_groups_1x2_keys_64_stages_1_cluster_1 = {2.4, 0.7};
inline constexpr FwdSmallCost d64_groups_1x2_keys_128_stages_1_cluster_2 = {3.2, 1.16};
inline constexpr FwdSmallCost d64_groups_1x2_keys_64_stages_4_cluster_1 = {2.5, 0.69};
inline constexpr FwdSmallCost d64_groups_1x4_keys_64_stages_2_cluster_1 = {3.7, 0.96};
inline constexpr FwdSmallCost d64_groups_2x2_keys_64_stages_3_cluster_1 = {2.75, 1.0};
inline constexpr FwdSmallCost d64_groups_1x2_keys_64_stages_3_paired = {2.7, 0.71};
inline constexpr FwdSmallCost d64_groups_1x2_keys_64_stages_4_cluster_4 = {3.2, 0.65};
inline constexpr FwdSmallCost d64_groups_1x2_keys_64_stages_4_cluster_8 = {3.6, 0.645};
inline constexpr FwdSmallCost d64_groups_1x1_keys_64_stages_8_cluster_16 = {3.45, 0.5};
inline constexpr FwdSmallCost d128_groups_1x2_keys_64_stages_3_cluster_1 = {3.35, 0.86};
inline constexpr FwdSmallCost d128_groups_1x1_keys_64_stages_3_cluster_1 = {2.95, 0.58};
inline constexpr FwdSmallCost d128_groups_1x1_keys_64_stages_3_paired = {3.05, 0.58};
inline constexpr FwdSmallCost d128_groups_1x2_keys_64_stages_2_cluster_4 = {3.65, 0.86};
inline constexpr FwdSmallCost d128_groups_1x2_keys_64_stages_2_cluster_8 = {4.4, 0.86};
inline constexpr FwdSmallCost d128_groups_1x1_keys_64_stages_4_cluster_16 = {4.55, 0.62};

// A round beside another CTA on the same SM.
inline constexpr double slower_beside_another = 1.4;

// Of what each of a pair would take alone: what the one beside it adds, and what a start and a round of a crowd take.
inline constexpr double held_up = 0.4, crowded_start = 0.6, crowded_round = 0.85;

// Bytes of K and V a microsecond that all SMs read, each head for itself.
inline constexpr double read_bytes_per_us = 11.8e6;

}  // namespace fwd_small_costs

}  // namespace attune::sm90
