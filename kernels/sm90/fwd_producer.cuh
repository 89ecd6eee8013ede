// The producer's lanes of sm90/fwd: they bring Q, K and V of every tile into shared memory as places there come free.
#pragma once

#include "kernels/common/tma.cuh"
#include "kernels/sm90/fwd_tile.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd {

// Q of a tile, each part as soon as its place is free.
template <Variant variant, Config config>
ATTUNE_DEVICE void load_q(const Params& params, SharedStorage<variant, config>& shared,
                          const Tile<variant, config>& tile, Ring<config.q_slots>& q) {
  constexpr int sharers = config.warpgroups / q_parts(config);
  const int batch = tile.batch(params), head = tile.head(params);
  for (int part = 0; part < q_parts(config); ++part) {
    shared.q_free[q.slot][part].wait(q.parity ^ 1, "q_free");
    shared.q_full[q.slot][part].arrive_expect(sizeof shared.q[0] / q_parts(config));
    for (int w = part * sharers; w < (part + 1) * sharers; ++w)
      tma_load_5d(shared.q[q.slot][w], params.q, shared.q_full[q.slot][part], 0,
                  tile.m * tile.rows + w * rows_per_warpgroup, 0, head, batch, Evict::first);
  }
  q.advance();
}

// K or V of all tiles of this CTA, last block first. With K comes Q, before the K of its tile; but a single Q is left
// to another warp: waiting for its place would hold up K.
template <bool with_q, Variant variant, Config config, int stages, typename Place>
ATTUNE_DEVICE void load_blocks(const Params& params, SharedStorage<variant, config>& shared, const TensorMap& map,
                               Place (&place)[stages], Mbarrier (&full)[stages], Mbarrier (&free)[stages],
                               const char* name) {
  Ring<config.q_slots> q;
  Ring<stages> ring;
  Tile<variant, config> tile;
  for (int i = 0; tile.load(params, i); ++i) {
    const int batch = tile.batch(params), head = tile.head(params);
    if constexpr (with_q) load_q(params, shared, tile, q);
    for (int n = tile.blocks(params, config.warpgroups - 1) - 1; n >= 0; --n) {
      free[ring.slot].wait(ring.parity ^ 1, name);
      full[ring.slot].arrive_expect(sizeof place[0]);
      tma_load_5d(place[ring.slot], map, full[ring.slot], 0, n * config.block_n, 0, head / params.group, batch,
                  Evict::last);
      ring.advance();
    }
  }
}
template <Variant variant, Config config>
ATTUNE_DEVICE void load_k(const Params& params, SharedStorage<variant, config>& shared) {
  load_blocks<(config.q_slots > 1)>(params, shared, params.k, shared.k, shared.k_full, shared.k_free, "k_free");
}
template <Variant variant, Config config>
ATTUNE_DEVICE void load_v(const Params& params, SharedStorage<variant, config>& shared) {
  load_blocks<false>(params, shared, params.v, shared.v, shared.v_full, shared.v_free, "v_free");
}

// Q of the next tile comes into the L2 while that of this one is waited for and used.
template <Variant variant, Config config>
ATTUNE_DEVICE void load_single_q(const Params& params, SharedStorage<variant, config>& shared) {
  Ring<config.q_slots> q;
  Tile<variant, config> tile;
  bool more = tile.load(params, 0);
  for (int i = 1; more; ++i) {
    load_q(params, shared, tile, q);
    more = tile.load(params, i);
    if (!more) return;
    const int batch = tile.batch(params), head = tile.head(params);
    for (int w = 0; w < config.warpgroups; ++w)
      tma_prefetch_5d(params.q, 0, tile.m * tile.rows + w * rows_per_warpgroup, 0, head, batch);
  }
}

}  // namespace attune::device::sm90_fwd
#endif
