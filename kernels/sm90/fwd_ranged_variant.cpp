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

Scores scores_of(const Problem& problem) {
  if (problem.has(ATTUNE_BIAS) || problem.has(ATTUNE_MASK)) return Scores::general;
  if (problem.softcap != 0) return Scores::capped;
  return is_ordinary(problem.scale) ? Scores::plain : Scores::general;
}

Variant variant_of(const Problem& problem, bool listed) {
  return {static_cast<device::Dtype>(problem.dtype),
          padded_qk(problem.dim_qk),
          padded_v(problem),
          mask_of(problem),
          scores_of(problem),
          listed};
}

Pack pack_of(const Problem& problem) {
  const int64_t group = problem.group();
  if (group == 1 || rows_per_warpgroup % group != 0) return {0};
  const int64_t together = device::ceil_div<int64_t>(problem.seq_q * group, rows_per_warpgroup);
  const int64_t apart = device::ceil_div<int64_t>(problem.seq_q, rows_per_warpgroup) * group;
  return {together < apart ? std::countr_zero(static_cast<uint64_t>(group)) : 0};
}
int64_t packs_of(const Problem& problem) { return problem.heads_q >> pack_of(problem).log2; }

}  // namespace attune::sm90::ranged
