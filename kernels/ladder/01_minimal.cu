// A block computes one row of the output, a thread one element of it. For each key the products of q and k are summed
// in shared memory, halving their number at each barrier: eight barriers a key at head dimension 64, each for one
// multiplication a thread. Keys and values are read from global memory by every row anew. It is right, and the line
// that all others are measured from.
//
// attune kernel
// entry: attention
// threads: d
// grid: q, h, b
// shared: 4 * d
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, causal, groups, d == 64 || d == 128, d == dv
#include "base.cuh"

__global__ void __launch_bounds__(D) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                               float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  float* const products = shared_memory<float>();
  const int row = blockIdx.x, i = threadIdx.x;
  const Head<ELEMENT> head = head_of(Q, K, V, O, LSE, D, h, hkv, q, k, blockIdx.y, blockIdx.z);
  const float query = static_cast<float>(row_of(head.q, row, head.q_step)[i]);
  const int seen = keys_seen(row, q, k, causal);

  float largest = -INFINITY, sum = 0.f, out = 0.f;
  for (int key = 0; key < seen; ++key) {
    products[i] = query * static_cast<float>(row_of(head.k, key, head.kv_step)[i]);
    __syncthreads();
    for (int half = D / 2; half > 0; half /= 2) {
      if (i < half) products[i] += products[i + half];
      __syncthreads();
    }
    const float score = products[0] * scale;
    __syncthreads();  // the next key's products take the place of this sum

    const float before = largest;
    largest = fmaxf(largest, score);
    const float shrink = expf(before - largest), weight = expf(score - largest);
    sum = sum * shrink + weight;
    out = out * shrink + weight * static_cast<float>(row_of(head.v, key, head.kv_step)[i]);
  }
  row_of(head.o, row, head.q_step)[i] = static_cast<ELEMENT>(seen > 0 ? out / sum : 0.f);
  if (i == 0) head.lse[row] = seen > 0 ? largest + logf(sum) : -INFINITY;
}
