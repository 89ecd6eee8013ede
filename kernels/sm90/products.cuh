// The two products of attention by wgmma: S = Q K^T with both operands in shared memory, and O += P V with P in
// registers. Tiles in shared memory are panels of 64 columns with the 128-byte swizzle.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

// The scores of 64 rows with `columns` keys, the first of a tile of `k_tile_rows`. `q` describes the rows, which are
// some of a tile of `q_tile_rows`.
template <Dtype dtype, int dim, int columns>
ATTUNE_DEVICE void issue_scores(float (&s)[columns / 2], uint64_t q, int q_tile_rows, const void* k, int k_tile_rows) {
  const uint64_t b = k_major_descriptor(shared_address(k));
#pragma unroll
  for (int step = 0; step < dim / 16; ++step) {
    const int panel = step / 4, inside = step % 4 * 32 / 16;
    Wgmma<columns>::template ss<dtype, Major::k>(s, q + panel * panel_bytes(q_tile_rows) / 16 + inside,
                                                 b + panel * panel_bytes(k_tile_rows) / 16 + inside, step != 0);
  }
  wgmma_commit();
}

// O over the first `columns` keys of a tile of `v_tile_rows`; `fresh`: O holds nothing yet.
template <Dtype dtype, int dim, int columns>
ATTUNE_DEVICE void issue_values(float (&o)[dim / 2], const uint32_t (*p)[4], const void* v, int v_tile_rows,
                                bool fresh) {
  const uint64_t b = mn_major_descriptor(shared_address(v), v_tile_rows);
#pragma unroll
  for (int step = 0; step < columns / 16; ++step)
    Wgmma<dim>::template rs<dtype, Major::mn>(o, p[step], b + step * 16 * panel_row_bytes / 16, step != 0 || !fresh);
  wgmma_commit();
}

}  // namespace attune::device::sm90
#endif
