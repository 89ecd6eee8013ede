#include "kernels/sm90/fwd_ranged_variant.hpp"

#include <algorithm>
#include <bit>

#include "kernels/attention/visibility.hpp"

namespace attune::sm90::ranged {
namespace {

// The head dim that the products of scores are compiled for, and that of the products with V, whose instructions do not
// come in every size.
int padded_qk(int64_t dim) { return static_cast<int>(device::round_up<int64_t>(dim, 16)); }
int padded_v(const Problem& problem) {
  const int64_t dim = problem.dim_v;
  // Two warpgroups share the columns of wide heads, in panels of 64.
  if (std::max(problem.dim_qk, dim) > 256)
    return dim > 256 ? 512 : static_cast<int>(device::round_up<int64_t>(dim, 128));
  return dim > 192 ? 256 : std::max(32, static_cast<int>(device::round_up<int64_t>(dim, 16)));
}
}  // namespace

bool has_lengths_on_device(const Problem& problem) {
  return problem.has(ATTUNE_PACKED) || problem.has(ATTUNE_USED_Q) || problem.has(ATTUNE_USED_K);
}

bool is_dense(const Problem& problem) {
  constexpr attune_features of_dense = ATTUNE_SCALE | ATTUNE_LSE | ATTUNE_OVERLAP | ATTUNE_KV_READY;
  return (problem.features & ~of_dense) == 0 && problem.dim_qk == problem.dim_v &&
         (problem.dim_qk == 64 || problem.dim_qk == 128 || problem.dim_qk == 256);
}

bool masks_keys_alone(const Problem& problem) {
  return problem.has(ATTUNE_MASK) && problem.mask.head == 0 && problem.mask.query == 0;
}

device::Band<int32_t> band_of(const Problem& problem) {
  auto band = device::band_of<int32_t>(visibility_of(problem), problem.seq_q, problem.seq_k);
  band.keys = band.end(static_cast<int32_t>(problem.seq_q) - 1);
  return band;
}

Mask mask_of(const Problem& problem) {
  const bool causal = problem.causal != Causal::none;
  if (problem.window_left != unbounded) return Mask::ranged;
  if (problem.window_right != unbounded || causal) return Mask::causal;
  return Mask::full;
}

namespace {

// Terms that differ by row, so that they come as a tile; others come as a vector.
bool differs_by_row(attune_features feature, const attune_score_strides& strides, const Problem& problem) {
  return problem.has(feature) && strides.query != 0;
}
bool bias_differs(const Problem& problem) { return differs_by_row(ATTUNE_BIAS, problem.bias, problem); }
bool mask_differs(const Problem& problem) { return differs_by_row(ATTUNE_MASK, problem.mask, problem); }

bool terms_differ_by_head_or_row(const Problem& problem) {
  const auto differ = [&](attune_features feature, const attune_score_strides& strides) {
    return problem.has(feature) && (strides.query != 0 || strides.head != 0);
  };
  return differ(ATTUNE_BIAS, problem.bias) || differ(ATTUNE_MASK, problem.mask);
}

// Whether terms can wait in shared memory: one tensor as a tile that the copy engine takes, others as vectors that all
// heads of a tile share.
bool can_be_staged(const Problem& problem) {
  if (problem.softcap != 0 || !is_ordinary(problem.scale)) return false;
  if (bias_differs(problem) && mask_differs(problem)) return false;
  const bool packs = pack_of(problem).log2 > 0;
  const auto shares_vector = [&](attune_features feature, const attune_score_strides& strides) {
    return !packs || !problem.has(feature) || strides.head == 0;
  };
  const TermTile tile = tile_of(problem);
  if (tile == TermTile::none)
    return shares_vector(ATTUNE_BIAS, problem.bias) && shares_vector(ATTUNE_MASK, problem.mask);
  const attune_score_strides& strides = tile_strides(problem);
  const auto fits = [&](int64_t stride) {
    const int64_t bytes = stride * static_cast<int>(tile);
    return bytes >= 0 && bytes % 16 == 0 && bytes < int64_t{1} << 40;
  };
  return !packs && strides.key == 1 && fits(strides.query) && fits(strides.head) && fits(strides.batch);
}

}  // namespace

TermTile tile_of(const Problem& problem) {
  if (mask_differs(problem)) return TermTile::mask;
  if (!bias_differs(problem)) return TermTile::none;
  return problem.bias_dtype == Dtype::f32 ? TermTile::single : TermTile::half;
}
const attune_score_strides& tile_strides(const Problem& problem) {
  return mask_differs(problem) ? problem.mask : problem.bias;
}

Scores scores_of(const Problem& problem) {
  if (problem.has(ATTUNE_BIAS) || problem.has(ATTUNE_MASK))
    return can_be_staged(problem) ? Scores::staged : Scores::general;
  if (problem.softcap != 0) return Scores::capped;
  return is_ordinary(problem.scale) ? Scores::plain : Scores::general;
}

Variant variant_of(const Problem& problem, bool listed) {
  const Scores scores = scores_of(problem);
  return {static_cast<device::Dtype>(problem.dtype),
          padded_qk(problem.dim_qk),
          padded_v(problem),
          mask_of(problem),
          scores,
          scores == Scores::staged ? tile_of(problem) : TermTile::none,
          listed};
}

Pack pack_of(const Problem& problem) {
  const int64_t group = problem.group();
  if (group == 1 || rows_per_warpgroup % group != 0) return {0};
  // Terms wait in shared memory for one head alone, and that gains more than full tiles do, unless rows are few.
  if (problem.seq_q >= rows_per_warpgroup && terms_differ_by_head_or_row(problem)) return {0};
  const int64_t together = device::ceil_div<int64_t>(problem.seq_q * group, rows_per_warpgroup);
  const int64_t apart = device::ceil_div<int64_t>(problem.seq_q, rows_per_warpgroup) * group;
  return {together < apart ? std::countr_zero(static_cast<uint64_t>(group)) : 0};
}
int64_t packs_of(const Problem& problem) { return problem.heads_q >> pack_of(problem).log2; }

}  // namespace attune::sm90::ranged
