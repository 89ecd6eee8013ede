// A forward attention kernel to start from: right, and slow. A warp computes one row of the output, a key at a time,
// with the online softmax: the running maximum, the running sum, and the output so far scaled to that maximum.
//
// attune kernel
// entry: attention
// threads: 32
// grid: q, h, b
// arguments: Q, K, V, O, LSE, h, hkv, q, k, scale, causal
// defines: D = d
// supports: f16, bf16, f32, causal, groups, d % 32 == 0, d <= 256, d == dv

// Q, K, V and O are dense (batch, row, head, dim), LSE is (batch, head, row). ELEMENT is __half, __nv_bfloat16 or
// float. causal is 0, 1 (aligned at the top left) or 2 (at the bottom right).
__global__ void __launch_bounds__(32) attention(const ELEMENT* Q, const ELEMENT* K, const ELEMENT* V, ELEMENT* O,
                                                float* LSE, int h, int hkv, int q, int k, float scale, int causal) {
  constexpr int per_lane = D / 32;  // lane i has the elements i, i + 32, i + 64 and so on
  const int row = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, lane = threadIdx.x;
  const int kv_head = head / (h / hkv);
  const long long q_at = ((static_cast<long long>(batch) * q + row) * h + head) * D;

  float query[per_lane], out[per_lane];
  for (int i = 0; i < per_lane; ++i) {
    query[i] = static_cast<float>(Q[q_at + lane + 32 * i]) * scale;
    out[i] = 0.f;
  }
  int seen = k;
  if (causal == 1) seen = min(k, row + 1);
  if (causal == 2) seen = min(k, row + 1 + k - q);

  float largest = -INFINITY, sum = 0.f;
  for (int key = 0; key < seen; ++key) {
    const long long kv_at = ((static_cast<long long>(batch) * k + key) * hkv + kv_head) * D;
    float score = 0.f;
    for (int i = 0; i < per_lane; ++i) score += query[i] * static_cast<float>(K[kv_at + lane + 32 * i]);
    for (int apart = 16; apart > 0; apart /= 2) score += __shfl_xor_sync(0xffffffff, score, apart);

    const float before = largest;
    largest = fmaxf(largest, score);
    const float shrink = expf(before - largest), weight = expf(score - largest);
    sum = sum * shrink + weight;
    for (int i = 0; i < per_lane; ++i) out[i] = out[i] * shrink + weight * static_cast<float>(V[kv_at + lane + 32 * i]);
  }

  // A row that sees nothing is 0, and its log-sum-exp is minus infinity.
  for (int i = 0; i < per_lane; ++i) O[q_at + lane + 32 * i] = static_cast<ELEMENT>(seen > 0 ? out[i] / sum : 0.f);
  if (lane == 0) LSE[(static_cast<long long>(batch) * h + head) * q + row] = seen > 0 ? largest + logf(sum) : -INFINITY;
}
