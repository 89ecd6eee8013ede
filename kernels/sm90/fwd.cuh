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

#include "kernels/common/divisor.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sm90/epilogue.cuh"
#include "kernels/sm90/products.cuh"

namespace attune::device::sm90_fwd {

struct Variant {
  Dtype dtype = Dtype::bf16;
  int dim = 128;
  bool causal = false;
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
  TensorMap q, k, v;
  void* o;
  float* lse;
  int64_t o_batch_stride, o_row_stride, o_head_stride;
  int64_t lse_batch_stride, lse_row_stride, lse_head_stride;
  int32_t seq_q, seq_k;
  int32_t diagonal;  // causal: row i sees keys 0 .. i + diagonal
  int32_t group;
  int32_t tiles_m, tiles;
  float scale_log2;
  // (batch, head) pairs are walked in sections, longest tiles of a section first. The last section may be narrower.
  Divisor heads, section_tiles, section, last_section;
  int32_t whole_sections;
};

constexpr int rows_per_warpgroup = 64;

// Parts of a slot of Q that come and go on their own.
ATTUNE_SHARED_CODE int q_parts(Config config) { return config.q_slots == 1 ? config.warpgroups : 1; }

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
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

// The bytes of SharedStorage<variant, config>, for configurations that are not known at compile time.
ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int rows = config.q_slots * tile_rows(config) + (config.stages_k + config.stages_v) * config.block_n;
  const int barriers = 2 * (config.q_slots * q_parts(config) + config.stages_k + config.stages_v);
  return round_up(rows * variant.dim * 2 + barriers * 8, 1024);
}

ATTUNE_SHARED_CODE int role_registers(Config config) {
  return 128 * (config.warpgroups * config.consumer_registers + config.producer_registers);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_limit_bytes) {
  const bool known_dim = variant.dim == 64 || variant.dim == 128 || variant.dim == 256;
  // The register file holds what the launch gave out: as many per thread as fit, in steps of 8.
  const int at_launch = 65536 / threads(config) / 8 * 8 * threads(config);
  return known_dim && variant.dtype != Dtype::f32 && config.block_n % 16 == 0 && config.stages_k >= 2 &&
         config.stages_v >= 2 && config.q_slots >= 1 && role_registers(config) <= at_launch &&
         shared_bytes(variant, config) <= shared_limit_bytes;
}

#ifdef __CUDACC_RTC__

// A block of query rows of one head.
template <Variant variant, Config config>
struct Tile {
  int m, bh;

  static constexpr int rows = tile_rows(config);

  // The i-th tile of this CTA; false if it has none.
  ATTUNE_DEVICE bool load(const Params& params, int i) {
    // Rows of the schedule alternate their direction, so that a CTA with a long tile gets a short one next.
    const int index = i * gridDim.x + ((variant.causal && (i & 1)) ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (index >= params.tiles) return false;
    const int section = divide(index, params.section_tiles);
    const int rest = index - section * params.section_tiles.value;
    const Divisor& width = section < params.whole_sections ? params.section : params.last_section;
    const int column = divide(rest, width);
    bh = section * params.section.value + rest - column * width.value;
    m = params.tiles_m - 1 - column;
    return true;
  }
  ATTUNE_DEVICE int batch(const Params& params) const { return divide(bh, params.heads); }
  ATTUNE_DEVICE int head(const Params& params) const { return bh - batch(params) * params.heads.value; }

  // Keys that rows before `row_end` see.
  ATTUNE_DEVICE int visible(const Params& params, int row_end) const {
    if (!variant.causal) return params.seq_k;
    return max_of(0, min_of(params.seq_k, min_of(row_end, params.seq_q) + params.diagonal));
  }
  ATTUNE_DEVICE int blocks(const Params& params, int warpgroup) const {
    return max_of(1, ceil_div(visible(params, m * rows + (warpgroup + 1) * rows_per_warpgroup), config.block_n));
  }
};

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
  // D = 256 gains nothing; careful steps of D = 128 have no register for the answer.
  static constexpr bool asks_for_v = config.early_waits;
  template <bool careful>
  static constexpr bool asks_for_k = !config.early_waits && (dim == 64 || (dim == 128 && !careful));
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
    sm90::issue_scores<variant.dtype, dim, columns>(scores<columns>(),
                                                    k_major_descriptor(shared_address(shared.q[q_slot][warpgroup])),
                                                    rows_per_warpgroup, shared.k[k_slot], block_n);
  }

  // The first call of all has no P yet: it multiplies zeros, and the next one overwrites the result.
  template <int columns>
  ATTUNE_DEVICE void issue_pv() {
    sm90::issue_values<variant.dtype, dim, columns>(o, p, shared.v[v.slot], block_n, pv_first);
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
    const int first = variant.causal ? min_of(params.seq_k, row + params.diagonal + 1) : params.seq_k;
    const int second = variant.causal ? min_of(params.seq_k, row + params.diagonal + 9) : params.seq_k;
    mask_columns<columns>(scores<columns>(), {first - start, second - start}, lane);
  }
  // Blocks of the tile that every row of this warpgroup sees whole.
  ATTUNE_DEVICE int unmasked_blocks() const {
    const int first_row = tile.m * tile.rows + warpgroup * rows_per_warpgroup;
    const int limit = variant.causal ? min_of(params.seq_k, first_row + params.diagonal + 1) : params.seq_k;
    return max_of(limit, 0) / block_n;
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
      if (row < params.seq_q && params.lse != nullptr && lane % 4 == 0)
        sm90::store_log_sum_exp(params, batch, head, row, finished.max[i], sum, empty);
      auto* out = static_cast<uint16_t*>(params.o) + batch * params.o_batch_stride + head * params.o_head_stride +
                  row * params.o_row_stride + lane % 4 * 8;
#pragma unroll
      for (int c = 0; c < dim / 32; ++c) {
        uint32_t x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float* pair = &o[16 * c + 4 * j + 2 * i];
          x[j] = empty ? 0 : pack<variant.dtype>(pair[0] * inverse, pair[1] * inverse);
        }
        quad_transpose(x, lane);
        if (row < params.seq_q) store_16_bytes(out + 32 * c, x);
      }
    }
  }

  // One block: its scores, and PV of the block before under its softmax. The first block of a tile and masked ones are
  // careful: they find their maximum. The others keep the old one on trust, and are done again when a sum shows that it
  // was too small. With `stores` O of the tile before leaves under the scores.
  template <int columns, bool careful, bool stores = false>
  ATTUNE_DEVICE void step(bool first) {
    const int k_slot = k.slot;
    await_turn(Turns::products);
    wgmma_fence();
    issue_qk<columns>(q.slot, k_slot);
    k.advance();
    if constexpr (stores) store();
    if ((!careful || pv_pending) && !v_is_there) shared.v_full[v.slot].wait(v.parity, "v_full");
    if constexpr (stores) wgmma_fence();
    if (pv_trimmed)
      issue_pv<narrow>();
    else
      issue_pv<block_n>();
    pass_turn(Turns::products);
    constexpr bool early = config.early_waits && !careful;
    if (early && block > 0) shared.k_full[k.slot].wait(k.parity, "k_full");

    wgmma_wait<1>();
    pin(scores<columns>());
    const bool k_is_there = asks_for_k<careful> && shared.k_full[k.slot].test(k.parity);
    if constexpr (asks_for_v) {
      Ring<config.stages_v> next = v;
      if (!careful || pv_pending) next.advance();
      v_is_there = shared.v_full[next.slot].test(next.parity);
    }
    if (careful && config.q_slots == 1 && block == 0) arrive(shared.q_free[q.slot][q_part()]);
    float shrink[2] = {1, 1}, block_sum[2];
    bool moved = false;
    if constexpr (careful) {
      if (first) {
        finished = rows;
        rows = {};
      }
      if (block >= unmasked_blocks()) mask<columns>();
      moved = move_max<columns>(scores<columns>(), params.scale_log2, rows, shrink);
    }
    exponentiate<columns, careful>(scores<columns>(), params.scale_log2, rows, block_sum);
    pin(scores<columns>());
    const bool again = !careful && early_vote && outgrown<variant.dtype>(block_sum);
    // The branch of either also keeps the assembler from hoisting the next wait above the exponentials.
    if constexpr (early) {
      if (again) moved = do_again(k_slot, shrink, block_sum);
    } else if (block > 0 && !k_is_there) {
      shared.k_full[k.slot].wait(k.parity, "k_full");
    }

    wgmma_wait<0>();
    pin(o);
    if (!careful || pv_pending) {
      arrive(shared.v_free[v.slot]);
      v.advance();
    }
    if (careful && first) {
      if (!stores_late && pv_pending) store();
    } else if constexpr (careful || early) {
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

  // O shrinks with the new maximum, if PV is done with O; otherwise this says that it must.
  ATTUNE_DEVICE bool do_again(int k_slot, float (&shrink)[2], float (&block_sum)[2]) {
    score_again<variant.dtype, dim, block_n>(s, shared.q[q.slot][warpgroup][0], warp * 16, rows_per_warpgroup,
                                             shared.k[k_slot][0], lane);
    const bool moved = move_max<block_n>(s, params.scale_log2, rows, shrink);
    if (!config.early_waits && moved) shrink_rows(o, shrink);
    exponentiate<block_n, false>(s, params.scale_log2, rows, block_sum);
    return config.early_waits && moved;
  }

  // O of the tile before, after the first block of this one: under the scores of the second, if that one trusts.
  ATTUNE_DEVICE void store_late(bool trusting) {
    if (trusting)
      step<block_n, false, true>(false);
    else
      store();
  }

  ATTUNE_DEVICE void careful_step(bool first) {
    if (variant.causal && narrow < block_n && visible_columns() <= narrow)
      step<narrow, true>(first);
    else
      step<block_n, true>(first);
  }

  // Columns of this block that some row of this warpgroup sees.
  ATTUNE_DEVICE int visible_columns() const {
    return tile.visible(params, tile.m * tile.rows + (warpgroup + 1) * rows_per_warpgroup) - block * block_n;
  }

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
      const int unmasked = unmasked_blocks();
      // With one slot for Q the last block is careful too: it will not be done again, so Q can go as soon as it was
      // read.
      constexpr int last_trusting = config.q_slots == 1 ? 1 : 0;
      if constexpr (one_loop) {
        const auto trusting = [&] { return block < unmasked && block >= last_trusting; };
        bool first = true;
        do {
          if (!first && trusting())
            step<block_n, false>(false);
          else
            careful_step(first);
          if (first) {
            skip_values();
            if (stores_late && i > 0) store_late(trusting());
          }
          first = false;
        } while (block >= 0);
      } else {
        careful_step(true);
        skip_values();
        while (block >= unmasked) careful_step(false);
        while (block >= last_trusting) step<block_n, false>(false);
        if (last_trusting == 1 && block == 0) careful_step(false);
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

#endif

}  // namespace attune::device::sm90_fwd
