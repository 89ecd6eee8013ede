// One block's step of the online softmax, as both Hopper kernels take it.
//
// A step has two properties that do not depend on each other. Its block is masked or not: only a masked one hides
// keys, and only after one may a row have seen nothing yet. And it finds its maximum, takes that of a sample of its
// scores, or trusts the one of earlier blocks. P is relative to that maximum in float32 and loses nothing by being
// larger than 1, so a maximum that was too small shows in the sum; then the warp scores the block again and finds it.
#pragma once

#include "kernels/attention/key_range.cuh"
#include "kernels/common/softmax.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

enum class Maximum { found, sampled, trusted };

// What suits the steps of sm90/fwd, by measurement and by what the assembler makes of them.
template <int dim, Mask mask, bool early_waits>
struct StepTuning {
  // Loops apart for first, masked and other blocks would gain D = 256 0.3 %, and take twice the time to compile.
  static constexpr bool one_loop = dim == 256 || mask == Mask::ranged;
  // O leaves under the scores of the next tile's second block. D = 128 gains nothing by it, and D = 64 loses.
  static constexpr bool stores_late = dim == 256;
  static_assert(one_loop || !stores_late);
  // A barrier that is asked before the exponentials often spares a wait after them, which would hold up the products.
  // D = 256 gains nothing; steps of D = 128 that find their maximum have no register for the answer.
  static constexpr bool asks_for_v = early_waits;
  static ATTUNE_DEVICE constexpr bool asks_for_k(Maximum maximum) {
    return !early_waits && (dim == 64 || (dim == 128 && maximum == Maximum::trusted));
  }
  // A vote on the sums right after the exponentials keeps the assembler from moving the additions below the next wait.
  static constexpr bool early_vote = early_waits || dim == 64;
};

// Hides from a fragment of scores what its two rows do not see of the block that begins at key `start`.
template <Mask mask, int columns>
ATTUNE_DEVICE void hide_keys(float (&s)[columns / 2], const Band<int32_t>& band, const int (&row)[2], int start,
                             int lane) {
  const auto keys = band.as<mask>();
  mask_columns<columns>(s, {keys.end(row[0]) - start, keys.end(row[1]) - start}, lane);
  if constexpr (mask == Mask::ranged)
    mask_columns_before<columns>(s, {keys.begin(row[0]) - start, keys.begin(row[1]) - start}, lane);
}

// A quarter of the scores stands for all. For the first block alone, and only if it is whole.
template <int columns>
ATTUNE_DEVICE void sample_max(const float (&s)[columns / 2], RowState& rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float m = fmaxf(s[2 * i], s[2 * i + 1]);
#pragma unroll
    for (int j = 4; j < columns / 8; j += 4) m = fmaxf(m, fmaxf(s[4 * j + 2 * i], s[4 * j + 2 * i + 1]));
    rows.max[i] = quad_max(m);
  }
}

// P takes the place of the scores. Says whether earlier results must shrink, and by how much.
template <int columns, bool masked, Maximum maximum>
ATTUNE_DEVICE bool update_softmax(float (&s)[columns / 2], float scale_log2, RowState& rows, float (&shrink)[2],
                                  float (&block_sum)[2]) {
  bool moved = false;
  if constexpr (maximum == Maximum::found) moved = move_max<columns>(s, scale_log2, rows, shrink);
  if constexpr (maximum == Maximum::sampled) sample_max<columns>(s, rows);
  exponentiate<columns, masked>(s, scale_log2, rows, block_sum);
  return moved;
}

}  // namespace attune::device::sm90
#endif
