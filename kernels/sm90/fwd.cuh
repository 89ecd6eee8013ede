// Forward attention for Hopper: O = softmax(scale * Q K^T) V and its log-sum-exp, f16 and bf16, head dims 64, 128, 256,
// full or causal (either alignment), grouped heads.
//
// One CTA per SM walks tiles of 64 x warpgroups query rows; the schedule is static (see Tile). Warps:
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
// The softmax trusts its maximum. The first block of a tile and masked blocks find theirs; other blocks keep it,
// compute P and its sum, and only when a sum shows that P outgrew its range is the block scored again, by the warp
// alone, and the maximum moved. P is relative to that maximum in float32 and loses nothing by being larger than 1. This
// saves a comparison per score and the exchange between lanes, which is what D = 64 waits for.
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
// What limits it: at D = 64 the special-function unit and latency, from D = 128 the tensor cores and the power they
// draw.
#pragma once

#include "kernels/common/named_barrier.cuh"
#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/sm90/fwd_producer.cuh"
#include "kernels/sm90/products.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd {

template <Variant variant, Config config>
struct Consumer {
  static constexpr int dim = variant.dim;
  static constexpr int block_n = config.block_n;
  static constexpr int k_steps = dim / 16;
  static constexpr int v_steps = block_n / 16;
  // Loops apart for first, masked and other blocks would gain D = 256 0.3 %, and take twice the time to compile.
  static constexpr bool one_loop = dim == 256;
  // O leaves under the scores of the next tile's second block. D = 128 gains nothing by it, and D = 64 loses.
  static constexpr bool stores_late = dim == 256;
  static_assert(one_loop || !stores_late);
  // A barrier that is asked before the exponentials often spares a wait after them, which would hold up the products.
  // D = 256 gains nothing; steps of D = 128 that find their maximum have no register for the answer.
  static constexpr bool asks_for_v = config.early_waits;
  template <bool finds>
  static constexpr bool asks_for_k = !config.early_waits && (dim == 64 || (dim == 128 && !finds));
  // A vote on the sums right after the exponentials keeps the assembler from moving the additions below the next wait.
  static constexpr bool early_vote = config.early_waits || dim == 64;
  using Storage = SharedStorage<variant, config>;

  const Params& params;
  Storage& shared;
  const int warpgroup;
  const int warp;  // of the warpgroup
  const int lane;
  const bool leader;  // one lane of the warp

  float s[block_n / 2];
  float o[dim / 2];
  uint32_t p[v_steps][4];
  RowState rows;
  RowState finished;  // of the tile whose last product is under way

  Tile<variant, config> tile, pv_tile;
  int block;  // of the tile, counts down
  Ring<config.q_slots> q;
  Ring<config.stages_k> k;
  Ring<config.stages_v> v;
  bool v_is_there = false;                                       // known before its wait
  bool pv_pending = false, pv_first = true, pv_trimmed = false;  // of the block whose P waits for its product

  ATTUNE_DEVICE void arrive(Mbarrier& barrier) {
    if (leader) barrier.arrive();
  }

  ATTUNE_DEVICE int q_part() const { return q_parts(config) == 1 ? 0 : warpgroup; }

  ATTUNE_DEVICE void await_turn(Turns turns) {
    if constexpr (config.turns != Turns::none)
      if (turns == config.turns) barrier_sync(1 + warpgroup, 256);
  }
  ATTUNE_DEVICE void pass_turn(Turns turns) {
    if constexpr (config.turns != Turns::none)
      if (turns == config.turns) barrier_arrive(1 + (warpgroup + 1) % config.warpgroups, 256);
  }

  // Blocks on the diagonal are trimmed to their first `narrow` columns when a warpgroup sees no more.
  static constexpr int narrow = min_of(64, block_n);

  template <int columns>
  ATTUNE_DEVICE void issue_qk(int q_slot, int k_slot) {
    issue_scores<variant.dtype, dim, columns>(scores<columns>(),
                                              k_major_descriptor(shared_address(shared.q[q_slot][warpgroup])),
                                              rows_per_warpgroup, shared.k[k_slot], block_n);
  }

  // The first call of all has no P yet: it multiplies zeros, and the next one overwrites the result.
  template <int columns>
  ATTUNE_DEVICE void issue_pv() {
    issue_values<variant.dtype, dim, columns>(o, p, shared.v[v.slot], block_n, pv_first);
  }

  // The first `columns` scores of each row; the rest of s is not in use.
  template <int columns>
  ATTUNE_DEVICE auto& scores() {
    return reinterpret_cast<float(&)[columns / 2]>(s);
  }

  // Hides the keys past each row's limit.
  template <int columns>
  ATTUNE_DEVICE void mask() {
    const int row = tile.m * tile.rows + warpgroup * rows_per_warpgroup + warp * 16 + lane / 4, start = block * block_n;
    const int first = params.keys.limit<variant.causal>(row), second = params.keys.limit<variant.causal>(row + 8);
    mask_columns<columns>(scores<columns>(), {first - start, second - start}, lane);
  }

  // Blocks of the tile that every row of this warpgroup sees whole.
  ATTUNE_DEVICE int whole_blocks() const {
    const int first_row = tile.m * tile.rows + warpgroup * rows_per_warpgroup;
    return max_of(params.keys.limit<variant.causal>(first_row), 0) / block_n;
  }

  // Normalises O of pv_tile and stores it with its LSE, straight from registers: four lanes that share a row exchange
  // columns so that each holds 16 contiguous bytes.
  ATTUNE_DEVICE void store() {
    const int batch = pv_tile.batch(params), head = pv_tile.head(params);
    const int first_row = pv_tile.m * pv_tile.rows + warpgroup * rows_per_warpgroup + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = first_row + 8 * i;
      const float sum = quad_sum(finished.sum[i]);
      const bool empty = sum == 0.f;
      const float inverse = reciprocal_approx(sum);
      if (row < params.keys.seq_q && params.out.lse != nullptr && lane % 4 == 0)
        store_log_sum_exp(params.out, params.scale_log2, batch, head, row, finished.max[i], sum, empty);
      auto* out = static_cast<uint16_t*>(params.out.o) + batch * params.out.o_batch_stride +
                  head * params.out.o_head_stride + row * params.out.o_row_stride + lane % 4 * 8;
#pragma unroll
      for (int c = 0; c < dim / 32; ++c) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &o[16 * c + 4 * j + 2 * i];
          x[j] = empty ? 0 : pack<variant.dtype>(pair[0] * inverse, pair[1] * inverse);
        }
        quad_transpose(x, lane);
        if (row < params.keys.seq_q) store_16_bytes(out + 32 * c, x);
      }
    }
  }

  // One block: its scores, and PV of the block before under its softmax. A block is masked where some row may not see
  // all of it. One that trusts its maximum has a block before it in the tile, and is done again when a sum shows that
  // the maximum was too small; so it must be whole. With `stores` O of the tile before leaves under the scores.
  template <int columns, bool masked, Maximum maximum, bool stores = false>
  ATTUNE_DEVICE void step(bool first) {
    constexpr bool finds = maximum == Maximum::found;
    static_assert(finds || (maximum == Maximum::trusted && !masked && columns == block_n));
    const int k_slot = k.slot;
    await_turn(Turns::products);
    wgmma_fence();
    issue_qk<columns>(q.slot, k_slot);
    k.advance();
    if constexpr (stores) store();
    if ((!finds || pv_pending) && !v_is_there) shared.v_full[v.slot].wait(v.parity, "v_full");
    if constexpr (stores) wgmma_fence();
    if (pv_trimmed)
      issue_pv<narrow>();
    else
      issue_pv<block_n>();
    pass_turn(Turns::products);
    constexpr bool early = config.early_waits && !finds;
    if (early && block > 0) shared.k_full[k.slot].wait(k.parity, "k_full");

    wgmma_wait<1>();
    pin(scores<columns>());
    const bool k_is_there = asks_for_k<finds> && shared.k_full[k.slot].test(k.parity);
    if constexpr (asks_for_v) {
      Ring<config.stages_v> next = v;
      if (!finds || pv_pending) next.advance();
      v_is_there = shared.v_full[next.slot].test(next.parity);
    }
    if (finds && config.q_slots == 1 && block == 0) arrive(shared.q_free[q.slot][q_part()]);
    float shrink[2] = {1, 1}, block_sum[2];
    bool moved = false;
    if constexpr (finds) {
      if (first) {
        finished = rows;
        rows = {};
      }
      if (masked && block >= whole_blocks()) mask<columns>();
      moved = move_max<columns>(scores<columns>(), params.scale_log2, rows, shrink);
    }
    exponentiate<columns, finds>(scores<columns>(), params.scale_log2, rows, block_sum);
    pin(scores<columns>());
    const bool again = !finds && early_vote && outgrown<variant.dtype>(block_sum);
    // The branch of either also keeps the assembler from hoisting the next wait above the exponentials.
    if constexpr (early) {
      if (again) moved = do_again(k_slot, shrink, block_sum);
    } else if (block > 0 && !k_is_there) {
      shared.k_full[k.slot].wait(k.parity, "k_full");
    }

    wgmma_wait<0>();
    pin(o);
    if (!finds || pv_pending) {
      arrive(shared.v_free[v.slot]);
      v.advance();
    }
    if (finds && first) {
      if (!stores_late && pv_pending) store();
    } else if constexpr (finds || early) {
      if (moved) shrink_rows(o, shrink);
    } else {
      if (early_vote ? again : outgrown<variant.dtype>(block_sum)) do_again(k_slot, shrink, block_sum);
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

  // The block is whole: nothing masks its scores again. O shrinks with the new maximum, if PV is done with O; otherwise
  // this says that it must.
  ATTUNE_DEVICE bool do_again(int k_slot, float (&shrink)[2], float (&block_sum)[2]) {
    const bool moved =
        find_max_again<variant.dtype, dim, block_n>(s, shared.q[q.slot][warpgroup][0], warp * 16, rows_per_warpgroup,
                                                    shared.k[k_slot][0], lane, params.scale_log2, rows, shrink);
    if (!config.early_waits && moved) shrink_rows(o, shrink);
    exponentiate<block_n, false>(s, params.scale_log2, rows, block_sum);
    return config.early_waits && moved;
  }

  // O of the tile before, after the first block of this one: under the scores of the second, if that one trusts.
  ATTUNE_DEVICE void store_late(bool trusting) {
    if (trusting)
      step<block_n, false, Maximum::trusted, true>(false);
    else
      store();
  }

  ATTUNE_DEVICE void masked_step(bool first) {
    if (variant.causal && narrow < block_n && visible_columns() <= narrow)
      step<narrow, true, Maximum::found>(first);
    else
      step<block_n, true, Maximum::found>(first);
  }
  ATTUNE_DEVICE void trusting_step() { step<block_n, false, Maximum::trusted>(false); }

  // Columns of this block that some row of this warpgroup sees.
  ATTUNE_DEVICE int visible_columns() const { return tile.seen_keys(params, warpgroup) - block * block_n; }

  // Blocks that only later warpgroups of this tile see. Waiting before freeing keeps the phases in step.
  ATTUNE_DEVICE void skip_blocks() {
    if constexpr (variant.causal) {
      for (int n = tile.blocks(params, config.warpgroups - 1) - 1; n > block; --n) {
        shared.k_full[k.slot].wait(k.parity, "k_full");
        arrive(shared.k_free[k.slot]);
        k.advance();
        await_turn(config.turns);
        pass_turn(config.turns);
      }
    }
  }
  ATTUNE_DEVICE void skip_values() {
    if constexpr (variant.causal) {
      for (int n = tile.blocks(params, config.warpgroups - 1); n > tile.blocks(params, warpgroup); --n) {
        shared.v_full[v.slot].wait(v.parity, "v_full");
        arrive(shared.v_free[v.slot]);
        v.advance();
        v_is_there = false;
      }
    }
  }

  ATTUNE_DEVICE void run() {
    if (config.turns != Turns::none && warpgroup == config.warpgroups - 1) barrier_arrive(1, 256);
#pragma unroll
    for (int i = 0; i < v_steps; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) p[i][r] = 0;

    int i = 0;
    if (!tile.load(params, i)) return;
    do {
      block = tile.blocks(params, warpgroup) - 1;
      skip_blocks();
      shared.q_full[q.slot][q_part()].wait(q.parity, "q_full");
      shared.k_full[k.slot].wait(k.parity, "k_full");
      const int unmasked = whole_blocks();
      // With one slot for Q the last block finds its maximum, too: it will not be done again, so Q can go as soon as it
      // was read.
      constexpr int last_trusting = config.q_slots == 1 ? 1 : 0;
      if constexpr (one_loop) {
        const auto trusting = [&] { return block < unmasked && block >= last_trusting; };
        bool first = true;
        do {
          if (!first && trusting())
            trusting_step();
          else
            masked_step(first);
          if (first) {
            skip_values();
            if (stores_late && i > 0) store_late(trusting());
          }
          first = false;
        } while (block >= 0);
      } else {
        masked_step(true);
        skip_values();
        while (block >= unmasked) masked_step(false);
        while (block >= last_trusting) trusting_step();
        if (last_trusting == 1 && block == 0) masked_step(false);
      }
      if (config.q_slots > 1) arrive(shared.q_free[q.slot][q_part()]);
      q.advance();
      pv_tile = tile;
    } while (tile.load(params, ++i));

    wgmma_fence();
    shared.v_full[v.slot].wait(v.parity, "v_full");
    if (pv_trimmed)
      issue_pv<narrow>();
    else
      issue_pv<block_n>();
    wgmma_wait<0>();
    pin(o);
    finished = rows;
    store();
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  if (warp == 0 && elect_one()) {
    for (int i = 0; i < config.q_slots; ++i)
      for (int part = 0; part < q_parts(config); ++part)
        shared.q_full[i][part].init(1), shared.q_free[i][part].init(4 * config.warpgroups / q_parts(config));
    for (int i = 0; i < config.stages_k; ++i) shared.k_full[i].init(1), shared.k_free[i].init(4 * config.warpgroups);
    for (int i = 0; i < config.stages_v; ++i) shared.v_full[i].init(1), shared.v_free[i].init(4 * config.warpgroups);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warp < 4) {
    give_registers<config.producer_registers>();
    if (warp == 0 && elect_one()) load_k<variant, config>(params, shared);
    if (warp == 1 && elect_one()) load_v<variant, config>(params, shared);
    if (config.q_slots == 1 && warp == 2 && elect_one()) load_single_q<variant, config>(params, shared);
  } else {
    take_registers<config.consumer_registers>();
    Consumer<variant, config> consumer{params,     shared, warp / 4 - 1, warp % 4, static_cast<int>(threadIdx.x % 32),
                                       elect_one()};
    consumer.run();
  }
}

}  // namespace attune::device::sm90_fwd
#endif
