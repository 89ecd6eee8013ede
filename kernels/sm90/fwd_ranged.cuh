// Forward attention for Hopper beyond the dense case: f16 and bf16, full, causal or within a window (either alignment),
// lengths that live on the device, few rows with keys that are split over CTAs, head dims up to 512 that are multiples
// of 8 and may differ for values, softcap, sinks, biases, boolean masks, grouped heads.
//
// One CTA per SM, or two, computes tiles of 64 query rows for each warpgroup. Beyond 256 columns of O two warpgroups
// have the same rows and half of the columns each. Warps:
//
//   producer   warp 0, one lane   K blocks                          registers given away
//              warp 1, one lane   V blocks
//              warp 2, one lane   Q of the next tile; the whole warp, where scores have staged terms, and these
//              warp 3, one lane   plans tiles, ahead of all others
//   consumers  64 rows each       a block j at a time, last to first:
//
//     tensor core   QK(j) | PV(j+1)       | QK(j-1) | PV(j)     ...
//     other pipes         | softmax(j)    |         | softmax(j-1)
//
//   PV runs one block behind, under the softmax of the next, across tiles as well: while the first block of a tile is
//   scored, the last product of the tile before ends, and its O leaves from registers. K and V stay in flight from tile
//   to tile, which is what a narrow window lives on. With Turns::products the warpgroups issue their products one after
//   the other, so that one's softmax lies under another's products.
//
// The first block of a tile and masked blocks find their maximum; other blocks trust it. Only when a sum shows that P
// outgrew its range is the block scored again, by the warp alone, and the maximum moved.
//
// Shared memory: q[slots], k[stages], v[stages], each tile as panels of 64 columns with the 128-byte swizzle; columns
// past the head dim are zeros that the copy engine fills in. terms[stages of K] and key_terms[stages of K] are the
// terms of a block of K (term_stages.cuh). With one slot of Q each 64 rows have barriers of their own. tiles[] are
// plans.
//
//   barrier    arrives                        count                waits
//   tile_full  warp 3                         1                    every other role
//   tile_free  consumers, warps 0 to 2        4 x warpgroups + 3   warp 3
//   q_full     warp 2 + bytes                 1                    consumers, first block of a tile
//   q_free     one lane per warp              4 x warpgroups       warp 2; see q_parts
//   k_full     warp 0 + bytes                 1                    consumers. With staged terms warp 2 arrives, too: 2
//   k_free     one lane per warp              4 x warpgroups       warp 0
//   v_full     warp 1 + bytes                 1                    consumers
//   v_free     one lane per warp              4 x warpgroups       warp 1
//   named 1+w  warpgroup w and w-1            256                  warpgroup w, its turn
//   named 8+w  warpgroup w                    128                  warpgroup w, which cleared values
#pragma once

#include "kernels/common/named_barrier.cuh"
#include "kernels/sm90/fwd_ranged_producer.cuh"
#include "kernels/sm90/products.cuh"
#include "kernels/sm90/rows.cuh"
#include "kernels/sm90/score_terms.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd_ranged {

template <Variant variant, Config config>
struct Consumer {
  static constexpr int dim_qk = variant.dim_qk, dim_v = variant.dim_v / config.value_parts;  // dim_v: of this warpgroup
  static_assert(config.value_parts == 1 || dim_v % panel_columns == 0);
  static constexpr int block_n = config.block_n;
  static constexpr bool may_have_terms = variant.scores == Scores::staged || variant.scores == Scores::general;
  // A barrier that is asked before the exponentials often spares a wait after them, which would hold up the products.
  static constexpr bool asks_for_k = dim_qk <= 128 && variant.scores == Scores::plain;
  // A vote on the sums right after the exponentials keeps the assembler from moving the additions below the next wait.
  static constexpr bool early_vote = dim_qk <= 64;
  // Where terms may hide every key that a row has met so far, also in a block that trusts its maximum.
  static constexpr bool terms_hide = variant.scores == Scores::staged;
  // The first block of a tile is trimmed to its first `narrow` columns when a warpgroup sees no more of it. That makes
  // a third kind of step, which the assembler takes only where each kind has a place of its own. Elsewhere it would
  // make products wait for each other.
  static constexpr int narrow = min_of(64, block_n);
  static constexpr bool trims = variant.mask == Mask::causal && narrow < block_n && config.q_slots > 1 &&
                                config.ctas_per_sm == 1 && dim_qk >= (variant.listed ? 80 : 64);

  const Params& params;
  SharedStorage<variant, config>& shared;
  const int warpgroup, warp, lane;  // each within the one before
  const bool leader;                // one lane of the warp
  const int row_group = warpgroup / config.value_parts, value_part = warpgroup % config.value_parts;

  float s[block_n / 2];
  float o[dim_v / 2];
  uint32_t p[block_n / 16][4] = {};  // of no block: the first PV multiplies zeros
  RowState rows;
  float inverse[2];  // of the sums of the tile whose last product is under way

  Ring<tile_slots> plan;
  int pv_plan = 0;                          // the slot of the tile that P belongs to
  KeyBlocks<int32_t, variant.mask> blocks;  // of this warpgroup in the tile
  int block;                                // counts down
  bool has_terms = false;                   // the tile, where scores may have them
  Ring<config.q_slots> q;
  Ring<config.stages_k> k;
  Ring<config.stages_v> v;
  bool pv_pending = false, pv_first = true, pv_trimmed = false;  // of the block whose P waits for its product

  ATTUNE_DEVICE const Tile& tile() const { return shared.tiles[plan.slot]; }
  ATTUNE_DEVICE const Tile& pv_tile() const { return shared.tiles[pv_plan]; }

  ATTUNE_DEVICE void arrive(Mbarrier& barrier) {
    if (leader) barrier.arrive();
  }
  ATTUNE_DEVICE int q_part() const { return q_parts(config) == 1 ? 0 : row_group; }
  ATTUNE_DEVICE void await_turn() {
    if constexpr (config.turns == Turns::products) barrier_sync(1 + warpgroup, 256);
  }
  ATTUNE_DEVICE void pass_turn() {
    if constexpr (config.turns == Turns::products) barrier_arrive(1 + (warpgroup + 1) % config.warpgroups, 256);
  }

  // The first `columns` scores of each row; the rest of s is not in use.
  template <int columns>
  ATTUNE_DEVICE auto& scores() {
    return reinterpret_cast<float(&)[columns / 2]>(s);
  }
  // This thread's rows: 0, and the eighth after it.
  ATTUNE_DEVICE Row row_of(const Tile& of, int i) const {
    return {params.call, of, row_group, warp * 16 + lane / 4 + 8 * i};
  }

  // A sequence whose length lives on the device may end inside a block, and behind it lie the values of the next one,
  // or none: 0 times these must not reach O. The block is a tile's first, since blocks are walked from the last.
  ATTUNE_DEVICE void clear_values_past_the_end() {
    const int end = pv_tile().band.keys, start = ceil_div(end, block_n) * block_n - block_n;
    const int first = max_of(end - max_of(start, 0), 0);
    // Only the last block of the sequence has an end inside; a window may end before it.
    if (first >= block_n || pv_tile().blocks[row_group].end * block_n <= end) return;
    constexpr int chunks = 128 / 16;
    const int thread = warp * 32 + lane;
    for (int panel = 0; panel < panels_of(variant.dim_v); ++panel)
      for (int i = first * chunks + thread; i < block_n * chunks; i += 128)
        reinterpret_cast<Chunk*>(shared.v[v.slot][panel])[i] = {};
    fence_async_shared();
    barrier_sync(8 + warpgroup, 128);
  }
  struct alignas(16) Chunk {
    uint32_t words[4];
  };

  // The columns of V that this warpgroup multiplies with, in the slot that comes next.
  ATTUNE_DEVICE const void* own_values() const { return shared.v[v.slot][value_part * (dim_v / panel_columns)]; }
  ATTUNE_DEVICE void issue_pv() {
    if (trims && pv_trimmed)
      issue_values<variant.dtype, dim_v, narrow>(o, p, own_values(), block_n, pv_first);
    else
      issue_values<variant.dtype, dim_v, block_n>(o, p, own_values(), block_n, pv_first);
  }

  // Both scorings of a block come here before their softmax.
  template <int columns, bool masked>
  ATTUNE_DEVICE void finish_scores(const float (&terms)[columns / 2], int k_slot) {
    if constexpr (variant.scores == Scores::capped) cap_scores(scores<columns>(), params.call.softcap);
    if constexpr (variant.scores == Scores::general) scale_scores(scores<columns>(), params.call);
    if constexpr (variant.scores == Scores::staged) {
      if (!has_terms) {
#pragma unroll
        for (int j = 0; j < columns / 2; ++j) s[j] *= params.call.scale;
      } else {
        add_staged_terms<variant.dtype, variant.tile, block_n, columns>(
            scores<columns>(), params.call.scale, shared.terms[k_slot][row_group],
            params.call.has_key_terms ? shared.key_terms[k_slot] : nullptr, warp, lane);
      }
    }
    if (masked && variant.scores == Scores::general && has_terms) {
#pragma unroll
      for (int j = 0; j < columns / 2; ++j) s[j] += terms[j];
    }
    if (!masked || blocks.is_whole(block)) return;
    hide_keys<variant.mask, columns>(scores<columns>(), tile().band,
                                     {row_of(tile(), 0).position, row_of(tile(), 1).position}, block * block_n, lane);
  }

  // The sums of pv_tile are complete before its O is.
  ATTUNE_DEVICE void finish_rows() {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      inverse[i] = finish_row<variant.listed>(params.call, pv_tile(), row_of(pv_tile(), i), rows.max[i],
                                              quad_sum(rows.sum[i]), lane % 4 == 0 && value_part == 0);
  }
  ATTUNE_DEVICE void store() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Row row = row_of(pv_tile(), i);
      if (variant.listed && pv_tile().part >= 0)
        store_part(params.call, pv_tile(), row, value_part * dim_v, o, i, inverse[i], lane);
      else
        store_row<variant.dtype>(params.call, pv_tile(), row, value_part * dim_v, o, i, inverse[i], lane);
    }
    __syncwarp();  // every lane has read the plan
    arrive(shared.tile_free[pv_plan]);
  }

  // One block: its scores, and PV of the block before under its softmax. A step that finds its maximum may be the first
  // of its tile; one that trusts has a block before it, and is done again when a sum shows that its maximum was too
  // small.
  template <int columns, bool finds>
  ATTUNE_DEVICE void step(bool first) {
    const int k_slot = k.slot;
    const float scale = params.call.scale_log2;
    await_turn();
    wgmma_fence();
    issue_scores<variant.dtype, dim_qk, columns>(scores<columns>(),
                                                 k_major_descriptor(shared_address(shared.q[q.slot][row_group])),
                                                 rows_per_warpgroup, shared.k[k_slot], block_n);
    k.advance();
    // Under the scores: later in the step too few registers are left, and the assembler would serialise the products.
    if (finds && first) {
      if (pv_pending) finish_rows();
      rows = {};
    }
    if (!finds || pv_pending) {
      shared.v_full[v.slot].wait(v.parity, "v_full");
      if (variant.listed && pv_first) clear_values_past_the_end();
    }
    issue_pv();
    pass_turn();
    float terms[columns / 2];
    if (finds && variant.scores == Scores::general && has_terms)
      load_terms<variant.dtype, columns>(terms, params.call, tile(), {row_of(tile(), 0), row_of(tile(), 1)},
                                         block * block_n, lane);

    wgmma_wait<1>();
    pin(scores<columns>());
    const bool k_is_there =
        asks_for_k && (!finds || dim_qk <= 64) && block > blocks.begin && shared.k_full[k.slot].test(k.parity);
    if (finds && config.q_slots == 1 && block == blocks.begin) arrive(shared.q_free[q.slot][q_part()]);
    float shrink[2] = {1, 1}, block_sum[2];
    finish_scores<columns, finds>(terms, k_slot);
    bool moved = false;
    if constexpr (finds) moved = move_max<columns>(scores<columns>(), scale, rows, shrink);
    exponentiate<columns, finds || terms_hide>(scores<columns>(), scale, rows, block_sum);
    pin(scores<columns>());
    const bool again = !finds && early_vote && outgrown<variant.dtype, terms_hide>(block_sum, rows);
    // The branch keeps the assembler from hoisting the next wait above the exponentials.
    if (block > blocks.begin && !k_is_there) shared.k_full[k.slot].wait(k.parity, "k_full");

    wgmma_wait<0>();
    pin(o);
    if (!finds || pv_pending) {
      arrive(shared.v_free[v.slot]);
      v.advance();
    }
    if (finds && first) {
      if (pv_pending) store();
    } else if constexpr (finds) {
      if (moved) shrink_rows(o, shrink);
    } else {
      if (early_vote ? again : outgrown<variant.dtype, terms_hide>(block_sum, rows))
        do_again(k_slot, shrink, block_sum);
    }
    rows.sum[0] += block_sum[0];
    rows.sum[1] += block_sum[1];
    arrive(shared.k_free[k_slot]);
    pack_rows<variant.dtype, columns>(p, scores<columns>());
    pin(o);
    pv_pending = true;
    pv_first = first;
    pv_trimmed = columns < block_n;
    pv_plan = plan.slot;
    --block;
  }

  ATTUNE_DEVICE void do_again(int k_slot, float (&shrink)[2], float (&block_sum)[2]) {
    score_again<variant.dtype, dim_qk, block_n>(s, shared.q[q.slot][row_group][0], warp * 16, rows_per_warpgroup,
                                                shared.k[k_slot][0], lane);
    finish_scores<block_n, false>({}, k_slot);
    if (move_max<block_n>(s, params.call.scale_log2, rows, shrink)) shrink_rows(o, shrink);
    exponentiate<block_n, terms_hide>(s, params.call.scale_log2, rows, block_sum);
  }

  ATTUNE_DEVICE int blocks_after() const {
    return variant.mask == Mask::full ? 0 : tile().blocks[row_groups(config) - 1].end - tile().blocks[row_group].end;
  }
  ATTUNE_DEVICE int blocks_before() const {
    return variant.mask == Mask::ranged ? blocks.begin - tile().blocks[0].begin : 0;
  }

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
    }
  }

  // Whether this block may keep the maximum of those before it. Terms straight from memory are gone when a block is
  // done again. With one slot for Q the last block finds its maximum, whatever it hides: it will not be done again, so
  // Q can go as soon as it was read.
  ATTUNE_DEVICE bool may_trust() const {
    return blocks.is_whole(block) && !(variant.scores == Scores::general && has_terms) &&
           block >= blocks.begin + (config.q_slots == 1 ? 1 : 0);
  }

  // `values_before`: blocks of the tile before whose V this warpgroup has yet to skip.
  ATTUNE_DEVICE void attend(int values_before) {
    if constexpr (trims) {
      const int end_row =
          max_of(min_of(tile().first_position(params.call.pack, row_group + 1), tile().rows_used) - 1, 0);
      if (tile().band.template as<variant.mask>().end(end_row) - block * block_n <= narrow)
        step<narrow, true>(true);
      else
        step<block_n, true>(true);
      skip_values(values_before + blocks_after());
      while (block >= blocks.whole_end) step<block_n, true>(false);
      while (block >= blocks.begin) step<block_n, false>(false);
    } else {
      bool first = true;
      do {
        if (!first && may_trust())
          step<block_n, false>(false);
        else
          step<block_n, true>(first);
        if (first) skip_values(values_before + blocks_after());
        first = false;
      } while (block >= blocks.begin);
    }
  }

  ATTUNE_DEVICE void run() {
    if (config.turns != Turns::none && warpgroup == config.warpgroups - 1) barrier_arrive(1, 256);
    int values_before = 0;
    for (;;) {
      shared.tile_full[plan.slot].wait(plan.parity, "tile_full");
      if (tile().head < 0) break;
      const KeyBlocks<int32_t>& walk = tile().blocks[row_group];
      blocks = {walk.begin, walk.whole_begin, walk.whole_end, walk.end};
      block = blocks.end - 1;
      has_terms = may_have_terms && tile().has_terms;
      skip_keys(blocks_after());
      shared.q_full[q.slot][q_part()].wait(q.parity, "q_full");
      shared.k_full[k.slot].wait(k.parity, "k_full");
      attend(values_before);
      if (config.q_slots > 1) arrive(shared.q_free[q.slot][q_part()]);
      values_before = blocks_before();
      skip_keys(values_before);
      q.advance();
      plan.advance();
    }
    if (!pv_pending) return;

    wgmma_fence();
    shared.v_full[v.slot].wait(v.parity, "v_full");
    if (variant.listed && pv_first) clear_values_past_the_end();
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
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    init_ring(shared.tile_full, shared.tile_free, tile_slots, 4 * config.warpgroups + 3);
    init_ring(&shared.q_full[0][0], &shared.q_free[0][0], config.q_slots * q_parts(config),
              4 * config.warpgroups / q_parts(config));
    init_ring(shared.k_full, shared.k_free, config.stages_k, 4 * config.warpgroups,
              variant.scores == Scores::staged ? 2 : 1);
    init_ring(shared.v_full, shared.v_free, config.stages_v, 4 * config.warpgroups);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp < 4) {
    give_registers<config.producer_registers>();
    Producer<variant, config> producer{params, shared};
    if constexpr (variant.scores == Scores::staged)
      if (warp == 2) return producer.load_q_and_terms(static_cast<int>(threadIdx.x % 32), elect_one());
    if (!elect_one()) return;
    if (warp == 0) producer.load_k();
    if (warp == 1) producer.load_v();
    if (warp == 2) producer.load_q();
    if (warp == 3) producer.plan_tiles();
  } else {
    take_registers<config.consumer_registers>();
    Consumer<variant, config> consumer{params,     shared, warp / 4 - 1, warp % 4, static_cast<int>(threadIdx.x % 32),
                                       elect_one()};
    consumer.run();
  }
}

}  // namespace attune::device::sm90_fwd_ranged
#endif
