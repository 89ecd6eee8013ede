// The producer's lanes of sm90/fwd_ranged: one plans tiles, three bring Q, K and V into shared memory as places there
// come free. Where scores have terms, a whole warp brings these and Q.
#pragma once

#include "kernels/common/registers.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/sm90/fwd_ranged_storage.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd_ranged {

// Barriers of a ring: `full` waits for `makers`, `free` for `users`.
ATTUNE_DEVICE void init_ring(Mbarrier* full, Mbarrier* free, int slots, int users, int makers = 1) {
  for (int i = 0; i < slots; ++i) full[i].init(makers), free[i].init(users);
}

template <Variant variant, Config config>
struct Producer {
  const Params& params;
  SharedStorage<variant, config>& shared;
  Ring<tile_slots> at;  // where this role stands among the plans

  // Plans every tile of the CTA, and one that ends them.
  ATTUNE_DEVICE void plan_tiles() {
    if constexpr (variant.listed) grid_dependency_wait();
    for (int i = 0;; ++i) {
      shared.tile_free[at.slot].wait(at.parity ^ 1, "tile_free");
      Tile& tile = shared.tiles[at.slot];
      bool found;
      ListedTile listed;
      if constexpr (variant.listed)
        found = find_tile(params.plan.list, i, listed, tile);
      else
        found = find_tile<variant.mask>(params.plan.order, i, tile_positions(config, params.call.pack), tile);
      if (found) {
        tile.head_kv = divide(tile.head, params.plan.packs_per_head_kv);
        tile.set_blocks<variant.mask>(params.call.pack, row_groups(config), config.block_n);
        if (variant.listed && listed.part >= 0) tile.restrict_blocks(listed.begin_block, listed.end_block);
      } else {
        tile.head = -1;
      }
      shared.tile_full[at.slot].arrive();
      if (!found) return;
      at.advance();
    }
  }

  // Calls visit(tile) with every tile in turn.
  template <typename Visit>
  ATTUNE_DEVICE void for_each_tile(Visit visit) {
    for (;;) {
      shared.tile_full[at.slot].wait(at.parity, "tile_full");
      const Tile& tile = shared.tiles[at.slot];
      if (tile.head < 0) return;
      visit(tile);
      shared.tile_free[at.slot].arrive();
      at.advance();
    }
  }

  ATTUNE_DEVICE void load_q() {
    Ring<config.q_slots> q;
    for_each_tile([&](const Tile& tile) { load_q_of(tile, q); });
  }

  ATTUNE_DEVICE void load_q_of(const Tile& tile, Ring<config.q_slots>& q) {
    constexpr int parts = q_parts(config), sharers = row_groups(config) / parts;
    for (int part = 0; part < parts; ++part) {
      shared.q_free[q.slot][part].wait(q.parity ^ 1, "q_free");
      Mbarrier& full = shared.q_full[q.slot][part];
      full.arrive_expect(sizeof shared.q[0] / parts);
      for (int w = part * sharers; w < (part + 1) * sharers; ++w)
        for (int panel = 0; panel < panels_of(variant.dim_qk); ++panel)
          tma_load_5d(shared.q[q.slot][w][panel], params.call.q, full, panel * panel_columns, 0,
                      tile.first_q + tile.first_position(params.call.pack, w), tile.head, tile.batch, Evict::first);
    }
    q.advance();
  }

  // By a whole warp: Q, and the terms of each block in the stage of its K. Q of the next tile follows the terms of this
  // one's last block, which come as early as that K.
  ATTUNE_DEVICE void load_q_and_terms(int lane, bool leader) {
    Ring<config.q_slots> q;
    Ring<config.stages_k> k;
    for (;;) {
      shared.tile_full[at.slot].wait(at.parity, "tile_full");
      const Tile& tile = shared.tiles[at.slot];
      if (tile.head < 0) return;
      if (leader) load_q_of(tile, q);
      const int begin = tile.blocks[0].begin;
      for (int n = tile.blocks[row_groups(config) - 1].end - 1; n >= begin; --n) {
        shared.k_free[k.slot].wait(k.parity ^ 1, "k_free");
        if (tile.has_terms)
          load_terms(tile, n * config.block_n, k.slot, lane, leader);
        else if (leader)
          shared.k_full[k.slot].arrive();
        k.advance();
      }
      __syncwarp();  // every lane has read the plan
      if (leader) shared.tile_free[at.slot].arrive();
      at.advance();
    }
  }

  ATTUNE_DEVICE void load_terms(const Tile& tile, int start, int slot, int lane, bool leader) {
    const Call& call = params.call;
    const bool by_lanes = variant.tile != TermTile::none && !call.terms_by_engine;
    load_key_terms<variant.dtype, variant.tile>(shared.key_terms[slot], call, tile, start, lane);
    if constexpr (variant.tile != TermTile::none) {
      if (by_lanes)
        for (int w = 0; w < row_groups(config); ++w)
          copy_term_tile_by_lanes<variant.tile, config.block_n>(shared.terms[slot][w], call, tile,
                                                                tile.first_position(call.pack, w), start, lane);
    }
    __syncwarp();  // the leader's arrival speaks for all lanes
    if (!leader) return;
    Mbarrier& full = shared.k_full[slot];
    if (variant.tile == TermTile::none || by_lanes) {
      full.arrive();
      return;
    }
    if constexpr (variant.tile != TermTile::none) {
      full.arrive_expect(sizeof shared.terms[0]);
      for (int w = 0; w < row_groups(config); ++w)
        copy_term_tile<variant.tile, config.block_n>(shared.terms[slot][w], call, tile,
                                                     tile.first_position(call.pack, w), start, full);
    }
  }

  // K or V of every tile, last block first.
  template <int stages, int panels, int bytes>
  ATTUNE_DEVICE void load_blocks(const TensorMap& map, uint8_t (&place)[stages][panels][bytes],
                                 Mbarrier (&full)[stages], Mbarrier (&free)[stages], const char* name) {
    Ring<stages> ring;
    for_each_tile([&](const Tile& tile) {
      const int begin = tile.blocks[0].begin;
      for (int n = tile.blocks[row_groups(config) - 1].end - 1; n >= begin; --n) {
        free[ring.slot].wait(ring.parity ^ 1, name);
        full[ring.slot].arrive_expect(sizeof place[0]);
        for (int panel = 0; panel < panels; ++panel)
          tma_load_5d(place[ring.slot][panel], map, full[ring.slot], panel * panel_columns,
                      tile.first_k + n * config.block_n, tile.head_kv, tile.batch, 0, Evict::last);
        ring.advance();
      }
    });
  }
  ATTUNE_DEVICE void load_k() { load_blocks(params.call.k, shared.k, shared.k_full, shared.k_free, "k_free"); }
  ATTUNE_DEVICE void load_v() { load_blocks(params.call.v, shared.v, shared.v_full, shared.v_free, "v_free"); }
};

}  // namespace attune::device::sm90_fwd_ranged
#endif
