// Forward attention for problems too small to fill a Hopper GPU with tiles of many rows: one launch, 64 or 128 rows to
// a CTA, and the keys of a tile split over warpgroups of the CTA and over the CTAs of a cluster.
//
//   start       one thread sets the barriers up and asks for Q and the first K of every group at once; then each
//               group's first warp asks for the rest of its share. Every warpgroup computes: a producer warp would cost
//               the others their registers
//   groups      warpgroup (r, g) takes the 64 rows of row group r and every key_groups-th block of the CTA's share
//   join        the key groups of a row group exchange parts of O through shared memory: g ends with the columns of
//               slice g, summed. The CTAs of a cluster do the same by stores into each other's shared memory, which
//               arrive on a barrier, so that no CTA waits for another to be done with more than it needs: owner p ends
//               with every second row (p & 1) and a slice of the columns (p >> 1)
//
// With heads that share K and V, and few rows, the rows of those heads are packed into one tile: row = position * pack
// + head of the group.
//
// Shared memory: q; per key group k[stages], v[stages], as panels of 64 columns with the 128-byte swizzle, and reused
// for the group's parts of O; what the other CTAs send.
//
//   barrier    arrives                    count            waits
//   q_full     starting thread + bytes    1                every warpgroup
//   k_full     loading lane + bytes       1                the key group
//   v_full     loading lane + bytes       1                the key group
//   free       one lane per warp          4 x row groups   the loading lane, before it fills the slot again
//   received   starting thread + bytes    1                every warpgroup, before it stores
//   cluster    every thread                                before the first remote store: the others have started
//
// What limits it: latency. docs/latency.md says where the time goes.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/named_barrier.cuh"
#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/sm90/fwd_small_storage.cuh"
#include "kernels/sm90/products.cuh"

#ifdef __CUDACC_RTC__
namespace attune::device::sm90_fwd_small {

template <Variant variant, Config config>
struct Consumer {
  static constexpr int dim = variant.dim;
  static constexpr int block_n = config.block_n;
  static constexpr int units = units_per_group(variant, config);
  static constexpr int owned_units = units_per_owner(variant, config);
  static constexpr int owned_rows = config.cluster == 1 ? 2 : 1;
  using Storage = SharedStorage<variant, config>;

  const Params& params;
  Storage& shared;
  const int row_group, key_group, warp, lane;
  const bool leader;  // one lane of the warp
  const bool loads;   // one lane of the key group
  const int rank;

  int m, head, batch;  // the tile, its pack of heads and its sequence
  float s[block_n / 2];
  float o[dim / 2];
  uint32_t p[block_n / 16][4];
  RowState rows;
  Ring<config.stages> ring, pv;
  bool k_is_there = false;

  // The rest of the tile: this group's slice of O, summed over the CTA, and its row state.
  float mine[units][4];
  float max[2], sum[2];

  // The longest tiles first. CTAs on an SM are sm_count apart, nearly: the second gets what is short. Those beyond the
  // second wait for whoever ends first, and are taken as they come.
  ATTUNE_DEVICE void take_tile() {
    if constexpr (config.paired) {
      const int cta = static_cast<int>(blockIdx.x), last = static_cast<int>(gridDim.x) - 1, sms = params.sm_count;
      const int order = cta < sms ? cta : cta < 2 * sms ? last - (cta - sms) : cta - sms;
      const int tile = divide(order, params.all_packs);
      const int pack = order - tile * static_cast<int>(params.all_packs.value);
      m = params.tiles_m - 1 - tile;
      batch = divide(pack, params.packs);
      head = pack - batch * static_cast<int>(params.packs.value);
    } else {
      m = params.tiles_m - 1 - static_cast<int>(blockIdx.x) / config.cluster;
      head = static_cast<int>(blockIdx.y);
      batch = static_cast<int>(blockIdx.z);
    }
  }

  ATTUNE_DEVICE int thread_of_group() const { return (row_group * 4 + warp) * 32 + lane; }
  ATTUNE_DEVICE int first_row() const { return m * tile_rows(config) + row_group * rows_per_warpgroup; }

  // Keys that some packed row before `row_end` sees.
  ATTUNE_DEVICE int seen_before(int row_end) const {
    return params.keys.seen_before<variant.causal>(divide(row_end - 1, params.pack) + 1);
  }

  // The blocks of this CTA, an equal share of those that its rows see, and of this group: every key_groups-th of them.
  struct Share {
    int first, count;
    ATTUNE_DEVICE int block(int i) const { return first + i * config.key_groups; }
  };
  ATTUNE_DEVICE Share share(int group) const {
    const int blocks = ceil_div(seen_before((m + 1) * tile_rows(config)), block_n);
    const int begin = rank * blocks / config.cluster, end = (rank + 1) * blocks / config.cluster;
    return {begin + group, max_of(0, ceil_div(end - begin - group, config.key_groups))};
  }

  ATTUNE_DEVICE int kv_head() const { return divide(head, params.heads_per_pack); }
  ATTUNE_DEVICE void load_q() {
    if (share(0).count == 0) return;  // nobody would wait for it
    shared.q_full.arrive_expect(sizeof shared.q);
    for (int panel = 0; panel < Storage::panels; ++panel)
      tma_load_5d(shared.q[panel], params.q, shared.q_full, panel * panel_columns, 0,
                  divide(m * tile_rows(config), params.pack), head, batch, Evict::first);
  }
  ATTUNE_DEVICE void load_k(int group, int slot, int block) {
    shared.k_full[group][slot].arrive_expect(sizeof shared.group[0].k[0]);
    tma_load_5d(shared.group[group].k[slot], params.k, shared.k_full[group][slot], 0, block * block_n, 0, kv_head(),
                batch, Evict::last);
  }
  ATTUNE_DEVICE void load_v(int group, int slot, int block) {
    shared.v_full[group][slot].arrive_expect(sizeof shared.group[0].v[0]);
    tma_load_5d(shared.group[group].v[slot], params.v, shared.v_full[group][slot], 0, block * block_n, 0, kv_head(),
                batch, Evict::last);
  }
  // What is needed first, by the starting thread alone.
  ATTUNE_DEVICE void start() {
    if (!variant.early_keys) {
      grid_dependency_wait();
      load_q();
    }
    for (int group = 0; group < config.key_groups; ++group)
      if (const Share of = share(group); of.count > 0) load_k(group, 0, of.block(0));
  }

  ATTUNE_DEVICE void issue_qk(int slot) {
    issue_scores<variant.dtype, dim, block_n>(
        s, k_major_descriptor(shared_address(shared.q)) + row_group * panel_bytes(rows_per_warpgroup) / 16,
        tile_rows(config), shared.group[key_group].k[slot], block_n);
  }

  ATTUNE_DEVICE void issue_pv(int slot, bool first) {
    issue_values<variant.dtype, dim, block_n>(o, p, shared.group[key_group].v[slot], block_n, first);
  }

  // Keys that every row of the warpgroup sees.
  ATTUNE_DEVICE int every_row_sees() const { return seen_before(first_row() + 1); }

  // Hides what some row of the warpgroup does not see.
  ATTUNE_DEVICE void mask(int block) {
    const int start = block * block_n;
    if (start + block_n <= every_row_sees()) return;
    // Field by field: a copy of the whole gives other machine code.
    const DenseKeys keys{params.keys.seq_q, params.keys.seq_k, params.keys.diagonal};
    int limit[2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      limit[i] = keys.limit<variant.causal>(divide(first_row() + warp * 16 + lane / 4 + 8 * i, params.pack)) - start;
    mask_columns<block_n>(s, limit, lane);
  }

  // Scores are there; P takes their place, relative to a maximum that is found. Says whether, and by how much, earlier
  // results must shrink.
  ATTUNE_DEVICE bool masked_softmax(int block, float (&shrink)[2], float (&block_sum)[2]) {
    mask(block);
    const bool moved = move_max<block_n>(s, params.scale_log2, rows, shrink);
    exponentiate<block_n, true>(s, params.scale_log2, rows, block_sum);
    return moved;
  }

  // The maximum of the first block, unless it is masked: a quarter of the scores stands for all. Whether they were high
  // enough shows in the sum, as it does where the maximum of earlier blocks is trusted (see sm90/fwd).
  ATTUNE_DEVICE void sample_max() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float m = fmaxf(s[2 * i], s[2 * i + 1]);
#pragma unroll
      for (int j = 4; j < block_n / 8; j += 4) m = fmaxf(m, fmaxf(s[4 * j + 2 * i], s[4 * j + 2 * i + 1]));
      rows.max[i] = quad_max(m);
    }
  }
  // For a warp whose trust was misplaced. The block must be whole: nothing masks its scores again. Says whether earlier
  // results must shrink.
  ATTUNE_DEVICE bool do_again(int slot, float (&shrink)[2], float (&block_sum)[2]) {
    const bool moved = find_max_again<variant.dtype, dim, block_n>(
        s, shared.q[0], row_group * rows_per_warpgroup + warp * 16, tile_rows(config),
        shared.group[key_group].k[slot][0], lane, params.scale_log2, rows, shrink);
    exponentiate<block_n, true>(s, params.scale_log2, rows, block_sum);
    return moved;
  }

  // One block at most: nothing to overlap.
  ATTUNE_DEVICE void attend_once(const Share& share) {
    shared.k_full[key_group][0].wait(0, "k_full");
    shared.q_full.wait(0, "q_full");
    wgmma_fence();
    issue_qk(0);
    wgmma_wait<0>();
    pin(s);
    float shrink[2], block_sum[2];
    if ((share.block(0) + 1) * block_n <= every_row_sees()) {
      sample_max();
      exponentiate<block_n, false>(s, params.scale_log2, rows, block_sum);
      if (outgrown<variant.dtype>(block_sum)) do_again(0, shrink, block_sum);
    } else {
      masked_softmax(share.block(0), shrink, block_sum);
    }
    rows.sum[0] = block_sum[0], rows.sum[1] = block_sum[1];
    pack_rows<variant.dtype, block_n>(p, s);
    shared.v_full[key_group][0].wait(0, "v_full");
    wgmma_fence();
    issue_pv(0, true);
    wgmma_wait<0>();
    pin(o);
  }

  // Fills a slot that everybody is done with. With slots to spare, that of block i - 2: other warps may not have come
  // as far as this one.
  ATTUNE_DEVICE void refill(const Share& share, int i) {
    constexpr int lag = config.stages > 3 ? 2 : 1;
    if (const int next = i - lag + config.stages; loads && i >= lag && next < share.count) {
      Ring<config.stages> done = pv;  // of block i - 1
      if (lag == 2 && --done.slot < 0) done = {config.stages - 1, done.parity ^ 1};
      shared.free[key_group][done.slot].wait(done.parity, "free");
      load_k(key_group, done.slot, share.block(next));
      load_v(key_group, done.slot, share.block(next));
    }
    __syncwarp();
  }

  // Scores and softmax of block i of the share, PV of the block before under it. The first PV multiplies zeros and is
  // overwritten. Masked: some row may not see all of the block.
  template <bool masked, Maximum maximum>
  ATTUNE_DEVICE void step(const Share& share, int i) {
    constexpr bool found = maximum == Maximum::found;
    static_assert(found == masked, "a block that finds its maximum masks, and one that is done again must be whole");
    const auto [slot, parity] = ring;
    if (!k_is_there) shared.k_full[key_group][slot].wait(parity, "k_full");
    ring.advance();
    wgmma_fence();
    issue_qk(slot);
    issue_pv(pv.slot, i <= 1);
    wgmma_wait<1>();
    pin(s);
    k_is_there = shared.k_full[key_group][ring.slot].test(ring.parity);  // an answer takes a hundred cycles
    float shrink[2] = {1, 1}, block_sum[2];
    bool moved = false;
    if constexpr (found) {
      moved = masked_softmax(share.block(i), shrink, block_sum);
    } else {
      if (maximum == Maximum::sampled) sample_max();
      exponentiate<block_n, false>(s, params.scale_log2, rows, block_sum);
    }
    pin(s);
    // Asked here, so that the sums are formed between the exponentials: the assembler moves them down to their first
    // use, and below a wait they cost 5 %.
    const bool again = !found && outgrown<variant.dtype>(block_sum);
    // Here, not where PV is issued: the branch keeps the assembler from hoisting the next wait above the exponentials.
    shared.v_full[key_group][slot].wait(parity, "v_full");
    wgmma_wait<0>();
    pin(o);
    if (i > 0) {
      if (leader) shared.free[key_group][pv.slot].arrive();
      refill(share, i);
      pv.advance();
    }
    if (again) moved = do_again(slot, shrink, block_sum);
    if (moved) shrink_rows(o, shrink);
    rows.sum[0] += block_sum[0];
    rows.sum[1] += block_sum[1];
    pack_rows<variant.dtype, block_n>(p, s);
    pin(o);
  }

  ATTUNE_DEVICE void attend(const Share& share) {
#pragma unroll
    for (int j = 0; j < block_n / 16; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) p[j][r] = 0;
    shared.q_full.wait(0, "q_full");
    const int unmasked = ceil_div(every_row_sees() / block_n - share.first, config.key_groups);  // of the share
    int i = 0;
    if (unmasked > 0) step<false, Maximum::sampled>(share, i++);
    while (i < share.count) {
      if (i > 0 && i < unmasked)
        step<false, Maximum::trusted>(share, i++);
      else
        step<true, Maximum::found>(share, i++);
    }
    wgmma_fence();
    issue_pv(pv.slot, share.count == 1);
    wgmma_wait<0>();
    pin(o);
  }

  // O and the state of the rows, over the keys of this group. The starting thread has asked for Q and the first K.
  ATTUNE_DEVICE void attend_share() {
    const Share share = this->share(key_group);
    if (loads)
      for (int i = 0; i < min_of(share.count, config.stages); ++i) {
        if (i > 0) load_k(key_group, i, share.block(i));
        load_v(key_group, i, share.block(i));
      }
    if (variant.early_keys && loads && key_group == 0) {
      grid_dependency_wait();
      load_q();
    }
    __syncwarp();  // wgmma needs whole warps
    rows = {};
#pragma unroll
    for (int j = 0; j < dim / 2; ++j) o[j] = 0;
    if (share.count == 0) return;
    if constexpr (config.stages == 1)
      attend_once(share);
    else
      attend(share);
  }

  // How much of a part counts: it is relative to its own maximum.
  ATTUNE_DEVICE float weight(float part_max, float top) const {
    return part_max == minus_infinity ? 0.f : exp2_approx((part_max - top) * params.scale_log2);
  }

  // Sums O over the key groups; this group ends with its slice of the columns.
  ATTUNE_DEVICE void join_groups() {
    max[0] = rows.max[0], max[1] = rows.max[1];
    sum[0] = quad_sum(rows.sum[0]), sum[1] = quad_sum(rows.sum[1]);
#pragma unroll
    for (int u = 0; u < units; ++u)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        mine[u][c] = o[4 * u + c];
#pragma unroll
        for (int g = 1; g < config.key_groups; ++g)
          if (g == key_group) mine[u][c] = o[4 * (g * units + u) + c];
      }
    if constexpr (config.key_groups > 1) {
      constexpr int group_threads = config.row_groups * 128;
      using Parts = float[config.key_groups][units][group_threads][4];
      const int thread = thread_of_group(), row = row_group * rows_per_warpgroup + warp * 16 + lane / 4;
      auto& out = *reinterpret_cast<Parts*>(&shared.group[key_group]);
      if (config.row_groups > 1) __syncthreads();  // the other row groups are done with K and V
#pragma unroll
      for (int g = 0; g < config.key_groups; ++g)
        if (g != key_group)
#pragma unroll
          for (int u = 0; u < units; ++u)
            *reinterpret_cast<float4*>(out[g][u][thread]) =
                make_float4(o[4 * (g * units + u)], o[4 * (g * units + u) + 1], o[4 * (g * units + u) + 2],
                            o[4 * (g * units + u) + 3]);
      if (lane % 4 == 0)
#pragma unroll
        for (int i = 0; i < 2; ++i) shared.state[key_group][row + 8 * i] = {max[i], sum[i]};
      barrier_sync(1 + row_group, config.key_groups * 128);

      typename Storage::State state[config.key_groups][2];
      float top[2] = {max[0], max[1]};
#pragma unroll
      for (int g = 0; g < config.key_groups; ++g)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          state[g][i] = shared.state[g][row + 8 * i];
          top[i] = fmaxf(top[i], state[g][i].max);
        }
      const float keep[2] = {weight(max[0], top[0]), weight(max[1], top[1])};
      sum[0] = sum[1] = 0;
#pragma unroll
      for (int u = 0; u < units; ++u)
#pragma unroll
        for (int c = 0; c < 4; ++c) mine[u][c] *= keep[c / 2];
#pragma unroll
      for (int g = 0; g < config.key_groups; ++g) {
        const float w[2] = {weight(state[g][0].max, top[0]), weight(state[g][1].max, top[1])};
        sum[0] += w[0] * state[g][0].sum;
        sum[1] += w[1] * state[g][1].sum;
        if (g == key_group) continue;
        const auto& in = *reinterpret_cast<const Parts*>(&shared.group[g]);
#pragma unroll
        for (int u = 0; u < units; ++u) {
          const float4 x = *reinterpret_cast<const float4*>(in[key_group][u][thread]);
          mine[u][0] += w[0] * x.x;
          mine[u][1] += w[0] * x.y;
          mine[u][2] += w[1] * x.z;
          mine[u][3] += w[1] * x.w;
        }
      }
      max[0] = top[0], max[1] = top[1];
    }
  }

  // Sends the other CTAs of the cluster what they own.
  ATTUNE_DEVICE void send_parts() {
#pragma unroll
    for (int owner = 0; owner < config.cluster; ++owner) {
      const int i = owner % 2, first = owner / 2 * owned_units, from = rank - (rank > owner);
      if (owner != rank) {
        const uint32_t barrier = remote_address(&shared.received, owner);
#pragma unroll
        for (int u = 0; u < owned_units; ++u)
          store_remote_async(remote_address(shared.part[from][u][threadIdx.x], owner), mine[first + u][2 * i],
                             mine[first + u][2 * i + 1], barrier);
        store_remote_async(remote_address(&shared.part_state[from][threadIdx.x], owner), max[i], sum[i], barrier);
      }
    }
  }

  // What this CTA owns, over all keys.
  struct Owned {
    float x[owned_rows][owned_units][2];
    float max[owned_rows], sum[owned_rows];
    int first_unit;
  };
  // By value: a choice between places would keep them in memory.
  static ATTUNE_DEVICE float of_row(const float (&x)[2], bool second) {
    const float a = x[0], b = x[1];
    return second ? b : a;
  }
  ATTUNE_DEVICE Owned join_cluster() {
    Owned owned;
    owned.first_unit = rank / 2 * owned_units;
    if constexpr (config.cluster == 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        owned.max[i] = max[i], owned.sum[i] = sum[i];
#pragma unroll
        for (int u = 0; u < units; ++u) owned.x[i][u][0] = mine[u][2 * i], owned.x[i][u][1] = mine[u][2 * i + 1];
      }
    } else {
      const bool odd = rank & 1;
      const float own_max = of_row(max, odd), own_sum = of_row(sum, odd);
      float top = own_max;
#pragma unroll
      for (int u = 0; u < owned_units; ++u)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float x = 0;
#pragma unroll
          for (int h = 0; h < config.cluster / 2; ++h) {
            const float of_owner = of_row({mine[h * owned_units + u][c], mine[h * owned_units + u][2 + c]}, odd);
            x = h == rank / 2 ? of_owner : x;
          }
          owned.x[0][u][c] = x;
        }
      shared.received.wait(0, "received");
#pragma unroll
      for (int from = 0; from < config.cluster - 1; ++from) top = fmaxf(top, shared.part_state[from][threadIdx.x].max);
      const float keep = weight(own_max, top);
      owned.max[0] = top;
      owned.sum[0] = keep * own_sum;
#pragma unroll
      for (int u = 0; u < owned_units; ++u) owned.x[0][u][0] *= keep, owned.x[0][u][1] *= keep;
#pragma unroll
      for (int from = 0; from < config.cluster - 1; ++from) {
        const auto state = shared.part_state[from][threadIdx.x];
        const float w = weight(state.max, top);
        owned.sum[0] += w * state.sum;
#pragma unroll
        for (int u = 0; u < owned_units; ++u)
#pragma unroll
          for (int c = 0; c < 2; ++c) owned.x[0][u][c] += w * shared.part[from][u][threadIdx.x][c];
      }
    }
    return owned;
  }

  ATTUNE_DEVICE void store(const Owned& owned) {
#pragma unroll
    for (int i = 0; i < owned_rows; ++i) {
      const int local = warp * 16 + lane / 4 + 8 * (config.cluster == 1 ? i : rank & 1);
      const int row = first_row() + local, position = divide(row, params.pack);
      const int of_pack = row - position * static_cast<int>(params.pack.value);
      const int q_head = head * static_cast<int>(params.pack.value) + of_pack;
      const bool inside = position < params.keys.seq_q;
      const bool empty = owned.sum[i] == 0.f;
      const float inverse = empty ? 0.f : reciprocal_approx(owned.sum[i]);
      auto* out = static_cast<uint16_t*>(params.out.o) + batch * params.out.o_batch_stride +
                  q_head * params.out.o_head_stride + position * params.out.o_row_stride +
                  (key_group * units + owned.first_unit) * 8;
      uint32_t packed[owned_units];
#pragma unroll
      for (int u = 0; u < owned_units; ++u)
        packed[u] = pack<variant.dtype>(owned.x[i][u][0] * inverse, owned.x[i][u][1] * inverse);
      if constexpr (owned_units % 4 == 0) {
#pragma unroll
        for (int u = 0; u < owned_units; u += 4) {
          uint32_t x[4] = {packed[u], packed[u + 1], packed[u + 2], packed[u + 3]};
          quad_transpose(x, lane);
          if (inside) store_16_bytes(out + (u + lane % 4) * 8, x);
        }
      } else {
#pragma unroll
        for (int u = 0; u < owned_units; ++u)
          if (inside) *reinterpret_cast<uint32_t*>(out + u * 8 + lane % 4 * 2) = packed[u];
      }
      if (inside && params.out.lse != nullptr && key_group == 0 && owned.first_unit == 0 && lane % 4 == 0)
        store_log_sum_exp(params.out, params.scale_log2, batch, q_head, position, owned.max[i], owned.sum[i], empty);
    }
  }
};

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const bool leader = elect_one();
  Consumer<variant, config> consumer{.params = params,
                                     .shared = shared,
                                     .row_group = group / config.key_groups,
                                     .key_group = group % config.key_groups,
                                     .warp = warp % 4,
                                     .lane = lane,
                                     .leader = leader,
                                     .loads = group < config.key_groups && warp % 4 == 0 && leader,
                                     .rank = static_cast<int>(blockIdx.x % config.cluster)};
  consumer.take_tile();
  if (warp == 0 && leader) {
    shared.q_full.init(1);
    for (int g = 0; g < config.key_groups; ++g)
      for (int i = 0; i < config.stages; ++i)
        shared.k_full[g][i].init(1), shared.v_full[g][i].init(1), shared.free[g][i].init(4 * config.row_groups);
    if (config.cluster > 1) {
      shared.received.init(1);
      shared.received.arrive_expect(sizeof shared.part + (config.cluster - 1) * sizeof shared.part_state[0]);
    }
    fence_mbarrier_init();
    consumer.start();
  }
  __syncthreads();
  if (!variant.early_keys) {
    grid_dependency_launch();
    grid_dependency_wait();
  }
  if (config.cluster > 1) cluster_arrive_relaxed();

  consumer.attend_share();
  consumer.join_groups();
  if constexpr (config.cluster > 1) {
    cluster_wait();
    consumer.send_parts();
  }
  if (variant.early_keys) {
    grid_dependency_wait();    // the kernel ahead may read what is written now
    grid_dependency_launch();  // no sooner: who comes next knows of this kernel, not of the one ahead
  }
  consumer.store(consumer.join_cluster());
}

}  // namespace attune::device::sm90_fwd_small
#endif
