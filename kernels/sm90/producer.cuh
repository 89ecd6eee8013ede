// The producer's lanes of sm90/fwd, which bring tiles of Q and blocks of K and V into shared memory as places there
// come free. `Params` and `Storage` are those of the kernel.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/sm90/tiles.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90 {

// Barriers of a ring: `full` waits for one copy, `free` for `consumers` arrivals.
ATTUNE_DEVICE void init_ring(Mbarrier* full, Mbarrier* free, int slots, int consumers) {
  for (int i = 0; i < slots; ++i) full[i].init(1), free[i].init(consumers);
}

template <typename Params, typename Storage>
struct Producer {
  static constexpr auto variant = Storage::of_variant;
  static constexpr auto config = Storage::of_config;

  const Params& params;
  Storage& shared;
  Tile tile;

  ATTUNE_DEVICE bool next_tile(int i) { return tile.load<variant.mask>(params.order, i); }
  ATTUNE_DEVICE auto walk(int warpgroup) const {
    return tile.walk<variant.mask>(params.call, config.warpgroups, warpgroup, config.block_n);
  }

  // Q of a tile, each part as soon as its place is free.
  ATTUNE_DEVICE void load_q(Ring<config.q_slots>& q) {
    constexpr int parts = q_parts(config), sharers = config.warpgroups / parts;
    const int batch = tile.batch(params.order), head = tile.head(params.order);
    for (int part = 0; part < parts; ++part) {
      shared.q_free[q.slot][part].wait(q.parity ^ 1, "q_free");
      shared.q_full[q.slot][part].arrive_expect(sizeof shared.q[0] / parts);
      for (int w = part * sharers; w < (part + 1) * sharers; ++w)
        tma_load_5d(shared.q[q.slot][w], params.call.q, shared.q_full[q.slot][part], 0,
                    tile.first_row(config.warpgroups, w), 0, head, batch, Evict::first);
    }
    q.advance();
  }

  // K or V of all tiles of this CTA, last block first. With K comes Q, before the K of its tile; but a single Q is left
  // to another warp: waiting for its place would hold up K.
  template <bool with_q, int stages, typename Place>
  ATTUNE_DEVICE void load_blocks(const TensorMap& map, Place (&place)[stages], Mbarrier (&full)[stages],
                                 Mbarrier (&free)[stages], const char* name) {
    Ring<config.q_slots> q;
    Ring<stages> ring;
    for (int i = 0; next_tile(i); ++i) {
      const int batch = tile.batch(params.order), head = tile.head(params.order);
      if constexpr (with_q) load_q(q);
      const int begin = walk(0).begin;
      for (int n = walk(config.warpgroups - 1).end - 1; n >= begin; --n) {
        free[ring.slot].wait(ring.parity ^ 1, name);
        full[ring.slot].arrive_expect(sizeof place[0]);
        tma_load_5d(place[ring.slot], map, full[ring.slot], 0, n * config.block_n, 0, head / params.group, batch,
                    Evict::last);
        ring.advance();
      }
    }
  }
  ATTUNE_DEVICE void load_k() {
    load_blocks<(config.q_slots > 1)>(params.call.k, shared.k, shared.k_full, shared.k_free, "k_free");
  }
  ATTUNE_DEVICE void load_v() { load_blocks<false>(params.call.v, shared.v, shared.v_full, shared.v_free, "v_free"); }

  // Q of the next tile comes into the L2 while that of this one is waited for and used.
  ATTUNE_DEVICE void load_single_q() {
    Ring<config.q_slots> q;
    bool more = next_tile(0);
    for (int i = 1; more; ++i) {
      load_q(q);
      more = next_tile(i);
      if (!more) return;
      const int batch = tile.batch(params.order), head = tile.head(params.order);
      for (int w = 0; w < config.warpgroups; ++w)
        tma_prefetch_5d(params.call.q, 0, tile.first_row(config.warpgroups, w), 0, head, batch);
    }
  }
};

}  // namespace attune::device::sm90
#endif
