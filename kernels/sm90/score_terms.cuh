// What bias and boolean mask add to the scores of a block: loaded straight into the layout of wgmma's registers while
// the products are under way. Any strides will do; neighbouring keys that lie side by side are loaded in pairs. For
// what cannot wait in shared memory (term_stages.cuh): can_be_staged in fwd_ranged_variant.cpp has the rule.
#pragma once

#include "kernels/common/convert.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/call.cuh"
#include "kernels/sm90/rows.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

// Calls visit(j, key) with each element of a fragment of `columns` keys from `start` on that lies before `end`.
template <int columns, typename Visit>
ATTUNE_DEVICE void for_each_key(int start, int end, int lane, Visit visit) {
  const int first = start + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < columns / 2; ++j) {
    const int key = first + j / 4 * 8 + j % 2;
    if (key < end) visit(j, key);
  }
}

// The same with two keys at a time, visit(j, key) for both, and single(j, key) for a key whose neighbour lies past the
// end.
template <int columns, typename Visit, typename Single>
ATTUNE_DEVICE void for_each_pair(int start, int end, int lane, Visit visit, Single single) {
  const int first = start + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < columns / 2; j += 2) {
    const int key = first + j / 4 * 8;
    if (key + 1 < end)
      visit(j, key);
    else if (key < end)
      single(j, key);
  }
}

template <typename T>
ATTUNE_DEVICE const T* row_of_scores(const ScoreTensor& tensor, const Tile& tile, const Row& row) {
  // Rows past the end stand for the last one: what they give is not stored.
  const int position = min_of(row.position, max_of(tile.rows_used - 1, 0));
  return static_cast<const T*>(tensor.data) + tile.sequence * tensor.batch_stride + row.head * tensor.head_stride +
         position * tensor.row_stride;
}

// The term of each score: its bias, or -inf where the mask hides its key.
template <Dtype dtype, int columns>
ATTUNE_DEVICE void load_terms(float (&terms)[columns / 2], const Call& call, const Tile& tile, const Row (&rows)[2],
                              int start, int lane) {
#pragma unroll
  for (int j = 0; j < columns / 2; ++j) terms[j] = 0;
  const int end = tile.band.keys;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // Elements 0, 1 of every four are of the first row, 2 and 3 of the second.
    const auto is_of_row = [&](int j) { return j / 2 % 2 == i; };
    if (call.bias.data != nullptr && call.bias_is_float) {
      const float* row = row_of_scores<float>(call.bias, tile, rows[i]);
      for_each_key<columns>(start, end, lane, [&](int j, int key) {
        if (is_of_row(j)) terms[j] = row[key * call.bias.key_stride];
      });
    } else if (call.bias.data != nullptr && call.bias.in_pairs) {
      const uint16_t* row = row_of_scores<uint16_t>(call.bias, tile, rows[i]);
      for_each_pair<columns>(
          start, end, lane,
          [&](int j, int key) {
            if (!is_of_row(j)) return;
            const uint32_t pair = *reinterpret_cast<const uint32_t*>(row + key);
            terms[j] = to_float<dtype>(static_cast<uint16_t>(pair));
            terms[j + 1] = to_float<dtype>(static_cast<uint16_t>(pair >> 16));
          },
          [&](int j, int key) {
            if (is_of_row(j)) terms[j] = to_float<dtype>(row[key]);
          });
    } else if (call.bias.data != nullptr) {
      const uint16_t* row = row_of_scores<uint16_t>(call.bias, tile, rows[i]);
      for_each_key<columns>(start, end, lane, [&](int j, int key) {
        if (is_of_row(j)) terms[j] = to_float<dtype>(row[key * call.bias.key_stride]);
      });
    }
    if (call.mask.data != nullptr && call.mask.in_pairs) {
      const uint8_t* row = row_of_scores<uint8_t>(call.mask, tile, rows[i]);
      for_each_pair<columns>(
          start, end, lane,
          [&](int j, int key) {
            if (!is_of_row(j)) return;
            const uint16_t pair = *reinterpret_cast<const uint16_t*>(row + key);
            if ((pair & 0xffu) == 0) terms[j] = minus_infinity;
            if ((pair & 0xff00u) == 0) terms[j + 1] = minus_infinity;
          },
          [&](int j, int key) {
            if (is_of_row(j) && row[key] == 0) terms[j] = minus_infinity;
          });
    } else if (call.mask.data != nullptr) {
      const uint8_t* row = row_of_scores<uint8_t>(call.mask, tile, rows[i]);
      for_each_key<columns>(start, end, lane, [&](int j, int key) {
        if (is_of_row(j) && row[key * call.mask.key_stride] == 0) terms[j] = minus_infinity;
      });
    }
  }
}

// Scores become logits, but for their terms.
template <int count>
ATTUNE_DEVICE void scale_scores(float (&s)[count], const Call& call) {
  const float unit = call.cap != 0.f ? call.cap : call.scale;
  if (call.cap != 0.f) cap_scores(s, call.softcap);
  // Two overflows must not meet as inf - inf in the softmax.
  constexpr float limit = 3.0e38f;
#pragma unroll
  for (int j = 0; j < count; ++j) s[j] = fminf(fmaxf(s[j] * unit, -limit), limit);
}

}  // namespace attune::device::sm90
#endif
