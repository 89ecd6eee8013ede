// What becomes of a block's scores before the softmax sees them: softcap, and keys that rows do not see.
#pragma once

#include "kernels/attention/key_range.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/call.cuh"

namespace attune::device::sm90 {

enum class Scores : int32_t {
  plain,   // products
  capped,  // tanh of them
  general  // products, or tanh of them, and terms: a bias, a boolean mask (score_terms.cuh)
};

#ifdef __CUDACC_RTC__

// tanh(x) for |x| <= 1 to 6e-7 of itself: on the multiply-add pipes, where the unit of exp2 is what the softmax waits
// for. Fitted by Remez' algorithm to tanh(x) / x over x^2.
ATTUNE_DEVICE float tanh_near_zero(float x) {
  const float u = x * x;
  float y = -0.00306706037f;
  y = fmaf(y, u, 0.0167431142f);
  y = fmaf(y, u, -0.0516056757f);
  y = fmaf(y, u, 0.132814333f);
  y = fmaf(y, u, -0.333290428f);
  y = fmaf(y, u, 0.999999404f);
  return x * y;
}

// To 2e-7 of 1, for any x. An infinite power gives 1 or -1.
ATTUNE_DEVICE float tanh_anywhere(float x) {
  constexpr float two_log2_e = 2.88539008177793f;
  return fmaf(-2.f, reciprocal_approx(exp2_approx(x * two_log2_e) + 1.f), 1.f);
}

// Scores become tanh of themselves times the factor. A warp takes the polynomial if it holds for all of its scores.
template <int count>
ATTUNE_DEVICE void cap_scores(float (&s)[count], const Softcap& softcap) {
  float largest = 0;
#pragma unroll
  for (int j = 0; j < count; ++j) {
    s[j] *= softcap.factor;
    largest = fmaxf(largest, fabsf(s[j]));
  }
  if (__any_sync(0xffffffffu, largest > 1.f)) {
#pragma unroll
    for (int j = 0; j < count; ++j) s[j] = tanh_anywhere(s[j]);
  } else {
#pragma unroll
    for (int j = 0; j < count; ++j) s[j] = tanh_near_zero(s[j]);
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
