// What becomes of a block's scores before the softmax sees them: softcap, and keys that rows do not see.
#pragma once

#include "kernels/attention/key_range.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/call.cuh"

namespace attune::device::sm90 {

enum class Scores : int32_t {
  plain,   // products
  capped,  // tanh of them
  staged,  // products and terms, a bias or a boolean mask, that come by shared memory (term_stages.cuh)
  general  // products, or tanh of them, and terms of any strides, straight from memory (score_terms.cuh)
};

// Terms that every score has one of its own of, by the bytes of an element.
enum class TermTile : int32_t { none = 0, mask = 1, half = 2, single = 4 };

#ifdef __CUDACC_RTC__

// tanh(x) to 2e-7 of 1. An infinite power gives 1 or -1.
ATTUNE_DEVICE float tanh_anywhere(float x) {
  constexpr float two_log2_e = 2.88539008177793f;
  return fmaf(-2.f, reciprocal_approx(exp2_approx(x * two_log2_e) + 1.f), 1.f);
}

// Scores become tanh of themselves times the factor. Near zero, where those of models are, a polynomial on the
// multiply-add pipes is cheaper than the unit of exp2, which the softmax waits for. A warp takes it if it holds for all
// of its scores.
template <int count>
ATTUNE_DEVICE void cap_scores(float (&s)[count], const Softcap& softcap) {
  float largest = 0;
#pragma unroll
  for (int j = 0; j < count; ++j) largest = fmaxf(largest, fabsf(s[j]));
  if (!__any_sync(0xffffffffu, largest > softcap.near_limit)) {
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const float square = s[j] * s[j];
      float y = fmaf(softcap.near[3], square, softcap.near[2]);
      y = fmaf(y, square, softcap.near[1]);
      s[j] *= fmaf(y, square, softcap.near[0]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < count; ++j) s[j] = tanh_anywhere(s[j] * softcap.factor);
  }
}

// Hides the columns before limit[i].
template <int columns>
ATTUNE_DEVICE void mask_columns_before(float (&s)[columns / 2], const int (&limit)[2], int lane) {
#pragma unroll
  for (int j = 0; j < columns / 2; ++j)
    if (j / 4 * 8 + j % 2 < limit[j / 2 % 2] - lane % 4 * 2) s[j] = minus_infinity;
}

// Hides from a fragment of scores what its two rows do not see of the block that begins at key `start`.
template <Mask mask, int columns>
ATTUNE_DEVICE void hide_keys(float (&s)[columns / 2], const Band<int32_t>& band, const int (&row)[2], int start,
                             int lane) {
  const auto keys = band.as<mask>();
  mask_columns<columns>(s, {keys.end(row[0]) - start, keys.end(row[1]) - start}, lane);
  if constexpr (mask == Mask::ranged)
    mask_columns_before<columns>(s, {keys.begin(row[0]) - start, keys.begin(row[1]) - start}, lane);
}

#endif

}  // namespace attune::device::sm90
