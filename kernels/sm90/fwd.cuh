// Forward attention for Hopper: O = softmax(scale * Q K^T) V and its log-sum-exp, f16 and bf16, head dims 64, 128, 256,
// full, causal or within a window (either alignment), with sinks, grouped heads.
//
// One CTA per SM walks tiles of 64 x warpgroups query rows; the schedule is static (tiles.cuh). Warps:
//
//   producer   warp 0, one lane   Q of the next tile, K blocks          registers given away
//              warp 1, one lane   V blocks
//              warp 2, one lane   Q, where it has one slot
//   consumers  64 rows each       a block j at a time, last to first:
//
//     tensor core   QK(j) | PV(j+1)       | QK(j-1) | PV(j)     ...
//     other pipes         | softmax(j)    |         | softmax(j-1)
//
//   PV runs one block behind, under the softmax of the next, across tiles as well: while the first block of a tile is
//   scored, the last product of the tile before ends, and its O leaves from registers: at once, or for D = 256, which
//   has twice as much of it, under the scores of the second block. With Turns::products the warpgroups issue their
//   products one after the other, so that one's softmax lies under another's products.
//
// The first block of a tile and masked blocks find their maximum; other blocks trust it (softmax.cuh). Only when a sum
// shows that P outgrew its range is the block scored again, by the warp alone, and the maximum moved. This saves a
// comparison per score and the exchange between lanes, which is what D = 64 waits for.
//
// Shared memory: q[slots], k[stages], v[stages], each tile as panels of 64 columns with the 128-byte swizzle. D = 256
// has room for one Q, and the next one can come only when the last block has been scored. So there each warpgroup has
// barriers of its own for its rows, a warp of the producer does nothing but wait for them, and the Q after this one is
// brought into the L2 beforehand.
//
//   barrier   arrives                    count              waits
//   q_full    producer + bytes           1                  consumers, first block of a tile
//   q_free    one lane per warp          4 x warpgroups     producer; with one slot 4, warp 2
//   k_full    producer + bytes           1                  consumers
//   k_free    one lane per warp          4 x warpgroups     producer, warp 0
//   v_full    producer + bytes           1                  consumers
//   v_free    one lane per warp          4 x warpgroups     producer, warp 1
//   named 1+w warpgroup w and w-1        256                warpgroup w, its turn
//
// What limits it: at D = 64 the special-function unit and latency, from D = 128 the tensor cores and their power.
#pragma once

#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/producer.cuh"
#include "kernels/sm90/products.cuh"
#include "kernels/sm90/softmax.cuh"
#include "kernels/sm90/tiles.cuh"

namespace attune::device::sm90_fwd {

using namespace attune::device::sm90;

struct Variant {
  Dtype dtype = Dtype::bf16;
  int dim = 128;
  Mask mask = Mask::full;
};

// What warpgroups do one after the other, so that their phases interlock instead of colliding.
enum class Turns { none, products };

struct Config {
  int warpgroups = 2;  // of consumers, 64 query rows each
  int block_n = 128;   // keys per block
  int stages_k = 2;
  int stages_v = 2;
  int q_slots = 2;  // with 1, each warpgroup's rows come and go on their own
  int consumer_registers = 240;
  int producer_registers = 24;
  Turns turns = Turns::none;
  bool early_waits = false;  // for the next K under the products, and for PV after the sums were looked at
};

struct Params {
  Call call;
  TileOrder order;
  int32_t group;  // query heads that share a head of K and V
};

// Parts of a slot of Q that come and go on their own.
ATTUNE_SHARED_CODE int q_parts(Config config) { return config.q_slots == 1 ? config.warpgroups : 1; }

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
  static constexpr Variant of_variant = variant;
  static constexpr Config of_config = config;
  static constexpr int panels = variant.dim / panel_columns;
  uint8_t q[config.q_slots][config.warpgroups][panels][panel_bytes(rows_per_warpgroup)];
  uint8_t k[config.stages_k][panels][panel_bytes(config.block_n)];
  uint8_t v[config.stages_v][panels][panel_bytes(config.block_n)];
  Mbarrier q_full[config.q_slots][q_parts(config)], q_free[config.q_slots][q_parts(config)];
  Mbarrier k_full[config.stages_k], k_free[config.stages_k];
  Mbarrier v_full[config.stages_v], v_free[config.stages_v];
};

ATTUNE_SHARED_CODE int threads(Config config) { return (config.warpgroups + 1) * 128; }
ATTUNE_SHARED_CODE int tile_rows(Config config) { return config.warpgroups * rows_per_warpgroup; }

#ifdef __CUDACC_RTC__

template <Variant variant, Config config>
struct Consumer {
  static constexpr int dim = variant.dim;
  static constexpr int block_n = config.block_n;
  using Tuning = StepTuning<variant.dim, variant.mask, config.early_waits>;
  using Storage = SharedStorage<variant, config>;

  const Params& params;
  Storage& shared;
  const int warpgroup, warp, lane;  // each within the one before
  const bool leader;                // one lane of the warp

  float s[block_n / 2];
  float o[dim / 2];
  uint32_t p[block_n / 16][4] = {};  // of no block: the first PV multiplies zeros
  RowState rows;
  float inverse[2];  // of the sums of the tile whose last product is under way

  Tile tile, pv_tile;
  KeyBlocks<int, variant.mask> blocks;  // of the tile
  int block;                            // counts down
  Ring<config.q_slots> q;
  Ring<config.stages_k> k;
  Ring<config.stages_v> v;
  bool v_is_there = false;                                       // known before its wait
  bool pv_pending = false, pv_first = true, pv_trimmed = false;  // of the block whose P waits for its product

  ATTUNE_DEVICE void arrive(Mbarrier& barrier) {
    if (leader) barrier.arrive();
  }
  ATTUNE_DEVICE int q_part() const { return q_parts(config) == 1 ? 0 : warpgroup; }
  ATTUNE_DEVICE void await_turn() {
    if constexpr (config.turns == Turns::products) barrier_sync(1 + warpgroup, 256);
  }
  ATTUNE_DEVICE void pass_turn() {
    if constexpr (config.turns == Turns::products) barrier_arrive(1 + (warpgroup + 1) % config.warpgroups, 256);
  }

  // Blocks on the diagonal are trimmed to their first `narrow` columns when a warpgroup sees no more; but not those of
  // a window, where a second kind of step would take the registers that the products need.
  static constexpr int narrow = min_of(64, block_n);

  ATTUNE_DEVICE void issue_pv() {
    if (pv_trimmed)
      issue_values<variant.dtype, dim, narrow>(o, p, shared.v[v.slot], block_n, pv_first);
    else
      issue_values<variant.dtype, dim, block_n>(o, p, shared.v[v.slot], block_n, pv_first);
  }

  // The first `columns` scores of each row; the rest of s is not in use.
  template <int columns>
  ATTUNE_DEVICE auto& scores() {
    return reinterpret_cast<float(&)[columns / 2]>(s);
  }

  ATTUNE_DEVICE int first_row(const Tile& of) const {
    return of.first_row(config.warpgroups, warpgroup) + warp * 16 + lane / 4;
  }

  // Both scorings of a block come here before their softmax.
  template <int columns, bool masked>
  ATTUNE_DEVICE void finish_scores() {
    if (!masked || blocks.is_whole(block)) return;
    const int row = first_row(tile);
    hide_keys<variant.mask, columns>(scores<columns>(), params.call.band, {row, row + 8}, block * block_n, lane);
  }

  // The sums of pv_tile are complete before its O is.
  ATTUNE_DEVICE void finish_rows() {
    const int batch = pv_tile.batch(params.order), head = pv_tile.head(params.order);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row(pv_tile) + 8 * i;
      inverse[i] = finish_row(params.call, batch, head, row, rows.max[i], quad_sum(rows.sum[i]),
                              lane % 4 == 0 && row < params.call.seq_q);
    }
  }
  ATTUNE_DEVICE void store() {
    store_rows<variant.dtype>(params.call, pv_tile.batch(params.order), pv_tile.head(params.order), first_row(pv_tile),
                              o, inverse, lane);
  }

  // One block: its scores, and PV of the block before under its softmax. A step that finds its maximum may be the first
  // of its tile; one that trusts has a block before it, and is done again when a sum shows that its maximum was too
  // small. With `stores` O of the tile before leaves under the scores.
  template <int columns, bool masked, Maximum maximum, bool stores = false>
  ATTUNE_DEVICE void step(bool first) {
    constexpr bool trusts = maximum == Maximum::trusted;
    const int k_slot = k.slot;
    await_turn();
    wgmma_fence();
    issue_scores<variant.dtype, dim, columns>(scores<columns>(),
                                              k_major_descriptor(shared_address(shared.q[q.slot][warpgroup])),
                                              rows_per_warpgroup, shared.k[k_slot], block_n);
    k.advance();
    // Under the scores: later in the step too few registers are left, and the assembler would serialise the products.
    if (!trusts && first) {
      if (pv_pending) finish_rows();
      rows = {};
    }
    if constexpr (stores) store();
    if ((trusts || pv_pending) && !v_is_there) shared.v_full[v.slot].wait(v.parity, "v_full");
    if constexpr (stores) wgmma_fence();
    issue_pv();
    pass_turn();
    constexpr bool early = config.early_waits && trusts;
    if (early && block > blocks.begin) shared.k_full[k.slot].wait(k.parity, "k_full");

    wgmma_wait<1>();
    pin(scores<columns>());
    const bool k_is_there = Tuning::asks_for_k(maximum) && shared.k_full[k.slot].test(k.parity);
    if constexpr (Tuning::asks_for_v) {
      Ring<config.stages_v> next = v;
      if (trusts || pv_pending) next.advance();
      v_is_there = shared.v_full[next.slot].test(next.parity);
    }
    if (!trusts && config.q_slots == 1 && block == blocks.begin) arrive(shared.q_free[q.slot][q_part()]);
    float shrink[2] = {1, 1}, block_sum[2];
    finish_scores<columns, masked>();
    bool moved =
        update_softmax<columns, masked, maximum>(scores<columns>(), params.call.scale_log2, rows, shrink, block_sum);
    pin(scores<columns>());
    const bool again = trusts && Tuning::early_vote && outgrown<variant.dtype>(block_sum);
    // The branch of either also keeps the assembler from hoisting the next wait above the exponentials.
    if constexpr (early) {
      if (again) moved = do_again<masked>(k_slot, shrink, block_sum);
    } else if (block > blocks.begin && !k_is_there) {
      shared.k_full[k.slot].wait(k.parity, "k_full");
    }

    wgmma_wait<0>();
    pin(o);
    if (trusts || pv_pending) {
      arrive(shared.v_free[v.slot]);
      v.advance();
    }
    if (!trusts && first) {
      if (!Tuning::stores_late && pv_pending) store();
    } else if constexpr (!trusts || early) {
      if (moved) shrink_rows(o, shrink);
    } else {
      if (Tuning::early_vote ? again : outgrown<variant.dtype>(block_sum)) do_again<masked>(k_slot, shrink, block_sum);
    }
    rows.sum[0] += block_sum[0];
    rows.sum[1] += block_sum[1];
    arrive(shared.k_free[k_slot]);
    pack_rows<variant.dtype, columns>(p, scores<columns>());
    pin(o);
    pv_pending = true;
    pv_first = first;
    pv_trimmed = columns < block_n;
    --block;
  }

  // O shrinks with the new maximum, if PV is done with O; otherwise this says that it must.
  template <bool masked>
  ATTUNE_DEVICE bool do_again(int k_slot, float (&shrink)[2], float (&block_sum)[2]) {
    score_again<variant.dtype, dim, block_n>(s, shared.q[q.slot][warpgroup][0], warp * 16, rows_per_warpgroup,
                                             shared.k[k_slot][0], lane);
    finish_scores<block_n, masked>();
    const bool moved = move_max<block_n>(s, params.call.scale_log2, rows, shrink);
    if (!config.early_waits && moved) shrink_rows(o, shrink);
    exponentiate<block_n, masked>(s, params.call.scale_log2, rows, block_sum);
    return config.early_waits && moved;
  }

  ATTUNE_DEVICE void find(bool first) {
    if (variant.mask == Mask::causal && narrow < block_n &&
        tile.end_of_keys<variant.mask>(params.call, config.warpgroups, warpgroup) - block * block_n <= narrow)
      step<narrow, true, Maximum::found>(first);
    else
      step<block_n, true, Maximum::found>(first);
  }
  template <bool stores = false>
  ATTUNE_DEVICE void trust() {
    step<block_n, false, Maximum::trusted, stores>(false);
  }

  ATTUNE_DEVICE auto walk(int other) const {
    return tile.walk<variant.mask>(params.call, config.warpgroups, other, block_n);
  }
  ATTUNE_DEVICE int blocks_after() const {
    return variant.mask == Mask::full ? 0 : walk(config.warpgroups - 1).end - blocks.end;
  }
  ATTUNE_DEVICE int blocks_before() const { return variant.mask == Mask::ranged ? blocks.begin - walk(0).begin : 0; }

  // Blocks that only other warpgroups of this tile see. Waiting before freeing keeps the phases in step.
  ATTUNE_DEVICE void skip_keys(int count) {
    for (; count > 0; --count) {
      shared.k_full[k.slot].wait(k.parity, "k_full");
      arrive(shared.k_free[k.slot]);
      k.advance();
      await_turn();
      pass_turn();
    }
  }
  // V of a skipped block is freed one tile later; until then at most stages_v - 1 blocks are held.
  ATTUNE_DEVICE void skip_values(int count) {
    for (; count > 0; --count) {
      shared.v_full[v.slot].wait(v.parity, "v_full");
      arrive(shared.v_free[v.slot]);
      v.advance();
      v_is_there = false;
    }
  }

  // With one slot for Q the last block finds its maximum, whatever it hides: it will not be done again, so Q can go as
  // soon as it was read.
  ATTUNE_DEVICE bool may_trust() const {
    return blocks.is_whole(block) && block >= blocks.begin + (config.q_slots == 1 ? 1 : 0);
  }

  // `values_before`: blocks of the tile before whose V this warpgroup has yet to skip. `stores`: O of that tile is
  // still to leave, under the scores of this one's second block if that one trusts.
  ATTUNE_DEVICE void attend(int values_before, bool stores) {
    if constexpr (Tuning::one_loop) {
      bool first = true;
      do {
        if (!first && may_trust())
          trust();
        else
          find(first);
        if (first) {
          skip_values(values_before + blocks_after());
          if (Tuning::stores_late && stores) {
            if (may_trust())
              trust<true>();
            else
              store();
          }
        }
        first = false;
      } while (block >= blocks.begin);
    } else {
      static_assert(config.q_slots > 1, "the last block must find its maximum");
      find(true);
      skip_values(values_before + blocks_after());
      while (block >= blocks.whole_end) find(false);
      while (block >= blocks.begin) trust();
    }
  }

  ATTUNE_DEVICE void run() {
    if (config.turns != Turns::none && warpgroup == config.warpgroups - 1) barrier_arrive(1, 256);
    int i = 0, values_before = 0;
    if (!tile.load<variant.mask>(params.order, i)) return;
    do {
      blocks = walk(warpgroup);
      block = blocks.end - 1;
      skip_keys(blocks_after());
      shared.q_full[q.slot][q_part()].wait(q.parity, "q_full");
      shared.k_full[k.slot].wait(k.parity, "k_full");
      attend(values_before, i > 0);
      if (config.q_slots > 1) arrive(shared.q_free[q.slot][q_part()]);
      values_before = blocks_before();
      skip_keys(values_before);
      q.advance();
      pv_tile = tile;
    } while (tile.load<variant.mask>(params.order, ++i));

    wgmma_fence();
    shared.v_full[v.slot].wait(v.parity, "v_full");
    issue_pv();
    wgmma_wait<0>();
    pin(o);
    finish_rows();
    store();
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  using Storage = SharedStorage<variant, config>;
  auto& shared = *reinterpret_cast<Storage*>(dynamic_shared);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    init_ring(&shared.q_full[0][0], &shared.q_free[0][0], config.q_slots * q_parts(config),
              4 * config.warpgroups / q_parts(config));
    init_ring(shared.k_full, shared.k_free, config.stages_k, 4 * config.warpgroups);
    init_ring(shared.v_full, shared.v_free, config.stages_v, 4 * config.warpgroups);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp < 4) {
    give_registers<config.producer_registers>();
    Producer<Params, Storage> producer{params, shared};
    if (warp == 0 && elect_one()) producer.load_k();
    if (warp == 1 && elect_one()) producer.load_v();
    if (config.q_slots == 1 && warp == 2 && elect_one()) producer.load_single_q();
  } else {
    take_registers<config.consumer_registers>();
    Consumer<variant, config> consumer{params,     shared, warp / 4 - 1, warp % 4, static_cast<int>(threadIdx.x % 32),
                                       elect_one()};
    consumer.run();
  }
}

#endif

}  // namespace attune::device::sm90_fwd
