// The unfused way: cuBLAS multiplies Q and K, this kernel turns the scores into weights, and cuBLAS multiplies them by
// V. Both products run on the tensor cores at the speed of a library that has been tuned for years, and all scores go
// to memory and back in between: 4 bytes each written and read, 2 more for the weights. This file is the middle; the
// calls of cuBLAS, whose algorithms are tried one by one, are in lab/ladder/unfused.cpp.
//
// A block computes one row. Scores and weights are (batch, head, row, key), with rows `step` elements apart.
#include "base.cuh"

template <typename Combine>
DEVICE float block_reduced(float* per_warp, float x, Combine combine) {
  if (threadIdx.x % 32 == 0) per_warp[threadIdx.x / 32] = x;
  __syncthreads();
  float result = per_warp[0];
  for (int i = 1; i < 8; ++i) result = combine(result, per_warp[i]);
  return result;
}

__global__ void __launch_bounds__(256)
    softmax(const float* scores, ELEMENT* weights, float* LSE, int h, int q, int k, int step, float scale, int causal) {
  constexpr int threads = 256;
  float* const maxima = shared_memory<float>();
  float* const sums = maxima + threads / 32;
  const int row = blockIdx.x, thread = threadIdx.x;
  const long long line = (static_cast<long long>(blockIdx.z) * h + blockIdx.y) * q + row;
  const float* const from = scores + line * step;
  ELEMENT* const to = weights + line * step;
  const int seen = keys_seen(row, q, k, causal);

  float largest = -INFINITY;
  for (int key = thread; key < seen; key += threads) largest = fmaxf(largest, from[key] * scale);
  largest = block_reduced(maxima, warp_max(largest), [](float a, float b) { return fmaxf(a, b); });
  float sum = 0.f;
  for (int key = thread; key < seen; key += threads) sum += expf(from[key] * scale - finite(largest));
  sum = block_reduced(sums, warp_sum(sum), [](float a, float b) { return a + b; });
  // Also those that are hidden: cuBLAS multiplies all of them.
  for (int key = thread; key < k; key += threads)
    to[key] = static_cast<ELEMENT>(key < seen ? expf(from[key] * scale - finite(largest)) / sum : 0.f);
  if (thread == 0) LSE[line] = seen > 0 ? largest + logf(sum) : -INFINITY;
}
