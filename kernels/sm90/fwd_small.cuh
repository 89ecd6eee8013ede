// Forward attention for problems too small to fill a Hopper GPU with tiles of many rows: one launch, 64 rows to a CTA,
// and the keys of a tile split over the warpgroups of the CTA and, if that is not enough, over the CTAs of a cluster.
//
//   warpgroups  key_groups of them; group g takes every key_groups-th block of the CTA's share. One lane of each loads
//   the group's own K
//               and V blocks, all of them at once if they fit: a producer warp would cost the others their registers
//   merge       each group leaves (max, sum, O) in the shared memory of the CTA that owns those rows, one barrier over
//   the cluster, and
//              each CTA joins and stores its 64 / cluster rows
//
// Shared memory: q, k[group][stages], v[group][stages] as panels of 64 columns with the 128-byte swizzle; part[cluster
// * key_groups], rows padded by 32 bytes so that the eight rows of a warp's store fall into different banks.
//
//   barrier   arrives                     count   waits
//   q_full    loading lane + bytes        1       every warpgroup
//   k_full    loading lane + bytes        1       the group
//   v_full    loading lane + bytes        1       the group
//   free      one lane per warp           4       the group's loading lane, before it fills the slot again
//   cluster   every thread                all     before the first remote store (peers have started), and before the
//   join
//
// What limits it: latency. docs/latency.md says where the time goes.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/quad.cuh"
#include "kernels/common/registers.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/types.cuh"
#include "kernels/common/wgmma.cuh"

namespace attune::device::sm90_fwd_small {

struct Variant {
  Dtype dtype = Dtype::f16;
  int dim = 64;
  bool causal = false;
};

struct Config {
  int key_groups = 4;  // warpgroups that share the keys of a tile
  int block_n = 64;
  int stages = 2;   // blocks of a group in shared memory
  int cluster = 1;  // CTAs that share the keys of a tile
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
  float scale_log2;
  int32_t reserved;
};

constexpr int tile_rows = 64;

template <Variant variant, Config config>
struct alignas(1024) SharedStorage {
  static constexpr int panels = variant.dim / panel_columns;
  static constexpr int parts = config.cluster * config.key_groups;
  static constexpr int owned_rows = tile_rows / config.cluster;
  static constexpr int padded_dim = variant.dim + 8;

  uint8_t q[panels][panel_bytes(tile_rows)];
  uint8_t k[config.key_groups][config.stages][panels][panel_bytes(config.block_n)];
  uint8_t v[config.key_groups][config.stages][panels][panel_bytes(config.block_n)];
  float part[parts][owned_rows][padded_dim];
  float part_max[parts][owned_rows], part_sum[parts][owned_rows];
  Mbarrier q_full;
  Mbarrier k_full[config.key_groups][config.stages], v_full[config.key_groups][config.stages];
  Mbarrier free[config.key_groups][config.stages];
};

ATTUNE_SHARED_CODE int threads(Config config) { return config.key_groups * 128; }

ATTUNE_SHARED_CODE int shared_bytes(Variant variant, Config config) {
  const int tiles = (tile_rows + 2 * config.key_groups * config.stages * config.block_n) * variant.dim * 2;
  const int parts = config.cluster * config.key_groups * (tile_rows / config.cluster) * (variant.dim + 8 + 2) * 4;
  return round_up(tiles + parts + (1 + 3 * config.key_groups * config.stages) * 8, 1024);
}

ATTUNE_SHARED_CODE bool legal(Variant variant, Config config, int shared_limit_bytes) {
  return (variant.dim == 64 || variant.dim == 128) && variant.dtype != Dtype::f32 && config.block_n % 16 == 0 &&
         config.key_groups >= 1 && config.stages >= 2 && tile_rows % config.cluster == 0 && config.cluster <= 8 &&
         shared_bytes(variant, config) <= shared_limit_bytes;
}

#ifdef __CUDACC_RTC__

// The blocks of this CTA: an equal share of those that its 64 rows see.
struct Share {
  int begin, count;
};
template <Variant variant, Config config>
ATTUNE_DEVICE Share share_of(const Params& params, int m, int rank) {
  int keys = params.seq_k;
  if (variant.causal) keys = max_of(0, min_of(keys, min_of((m + 1) * tile_rows, params.seq_q) + params.diagonal));
  const int blocks = ceil_div(keys, config.block_n);
  const int begin = rank * blocks / config.cluster;
  return {begin, (rank + 1) * blocks / config.cluster - begin};
}

template <Variant variant, Config config>
struct Consumer {
  static constexpr int dim = variant.dim;
  static constexpr int block_n = config.block_n;

  const Params& params;
  SharedStorage<variant, config>& shared;
  const int group, warp, lane;
  const bool leader;  // one lane of the warp
  const int m, head, batch;

  float s[block_n / 2];
  float o[dim / 2];
  uint32_t p[block_n / 16][4];
  RowState rows;

  ATTUNE_DEVICE void issue_qk(int slot) {
    const uint64_t a = k_major_descriptor(shared_address(shared.q)),
                   b = k_major_descriptor(shared_address(shared.k[group][slot]));
#pragma unroll
    for (int step = 0; step < dim / 16; ++step) {
      const int panel = step / 4, inside = step % 4 * 32 / 16;
      Wgmma<block_n>::template ss<variant.dtype, Major::k>(s, a + panel * panel_bytes(tile_rows) / 16 + inside,
                                                           b + panel * panel_bytes(block_n) / 16 + inside, step != 0);
    }
    wgmma_commit();
  }

  ATTUNE_DEVICE void issue_pv(int slot, bool first) {
    const uint64_t b = mn_major_descriptor(shared_address(shared.v[group][slot]), block_n);
#pragma unroll
    for (int step = 0; step < block_n / 16; ++step)
      Wgmma<dim>::template rs<variant.dtype, Major::mn>(o, p[step], b + step * 16 * panel_row_bytes / 16,
                                                        step != 0 || !first);
    wgmma_commit();
  }

  ATTUNE_DEVICE void mask(int block) {
    const int row = m * tile_rows + warp * 16 + lane / 4, start = block * block_n;
    const int first = variant.causal ? min_of(params.seq_k, row + params.diagonal + 1) : params.seq_k;
    const int second = variant.causal ? min_of(params.seq_k, row + params.diagonal + 9) : params.seq_k;
    mask_columns<block_n>(s, {first - start, second - start}, lane);
  }

  ATTUNE_DEVICE void load(int slot, int block) {
    const int row = block * block_n, kv_head = head / params.group;
    shared.k_full[group][slot].arrive_expect(sizeof shared.k[0][0]);
    tma_load_5d(shared.k[group][slot], params.k, shared.k_full[group][slot], 0, row, 0, kv_head, batch, Evict::last);
    shared.v_full[group][slot].arrive_expect(sizeof shared.v[0][0]);
    tma_load_5d(shared.v[group][slot], params.v, shared.v_full[group][slot], 0, row, 0, kv_head, batch, Evict::last);
  }

  // Scores and softmax of one block, PV of the block before under it. The first PV multiplies zeros and is overwritten.
  ATTUNE_DEVICE void run(Share share) {
    const int count = max_of(0, ceil_div(share.count - group, config.key_groups));  // of this group
    const auto block_at = [&](int i) { return share.begin + group + i * config.key_groups; };
    const bool loads = warp == 0 && leader;
    if (loads) {
      if (group == 0 && count > 0) {
        shared.q_full.arrive_expect(sizeof shared.q);
        tma_load_5d(shared.q, params.q, shared.q_full, 0, m * tile_rows, 0, head, batch, Evict::first);
      }
      for (int i = 0; i < min_of(count, config.stages); ++i) load(i, block_at(i));
    }
    __syncwarp();  // wgmma needs whole warps
    const int every_row_sees =
        variant.causal ? max_of(0, min_of(params.seq_k, m * tile_rows + params.diagonal + 1)) : params.seq_k;
#pragma unroll
    for (int j = 0; j < dim / 2; ++j) o[j] = 0;
    if (count == 0) return;
#pragma unroll
    for (int j = 0; j < block_n / 16; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) p[j][r] = 0;
    Ring<config.stages> ring, pv;
    shared.q_full.wait(0, "q_full");
    int i = 0;
    do {
      shared.k_full[group][ring.slot].wait(ring.parity, "k_full");
      wgmma_fence();
      issue_qk(ring.slot);
      issue_pv(pv.slot, i <= 1);
      wgmma_wait<1>();
      pin(s);
      if ((block_at(i) + 1) * block_n > every_row_sees) mask(block_at(i));
      float shrink[2] = {1, 1};
      const bool moved = move_max<block_n>(s, params.scale_log2, rows, shrink);
      float block_sum[2];
      exponentiate<block_n, true>(s, params.scale_log2, rows, block_sum);
      rows.sum[0] += block_sum[0];
      rows.sum[1] += block_sum[1];
      pin(s);
      // Here, not where PV is issued: the branch keeps the assembler from hoisting the next wait above the
      // exponentials.
      shared.v_full[group][ring.slot].wait(ring.parity, "v_full");
      wgmma_wait<0>();
      pin(o);
      if (i > 0) {
        if (leader) shared.free[group][pv.slot].arrive();
        const int next = i - 1 + config.stages;
        if (loads && next < count) {
          shared.free[group][pv.slot].wait(pv.parity, "free");
          load(pv.slot, block_at(next));
        }
        __syncwarp();
        pv.advance();
        if (moved) shrink_rows(o, shrink);
      }
      pack_rows<variant.dtype, block_n>(p, s);
      pin(o);
      ring.advance();
    } while (++i < count);
    wgmma_fence();
    issue_pv(pv.slot, count == 1);
    wgmma_wait<0>();
    pin(o);
  }

  // Leaves this group's part with the CTAs that own its rows.
  ATTUNE_DEVICE void leave_part(int rank) {
    const int part = rank * config.key_groups + group;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = warp * 16 + 8 * i + lane / 4;
      const int owner = (warp * 16 + 8 * i) / shared.owned_rows, local = row % shared.owned_rows;
      const uint32_t to = remote_address(&shared.part[part][local][lane % 4 * 2], owner);
#pragma unroll
      for (int j = 0; j < dim / 8; ++j) store_remote(to + j * 32, o[4 * j + 2 * i], o[4 * j + 2 * i + 1]);
      const float sum = quad_sum(rows.sum[i]);
      if (lane % 4 == 0) {
        store_remote(remote_address(&shared.part_max[part][local], owner), rows.max[i]);
        store_remote(remote_address(&shared.part_sum[part][local], owner), sum);
      }
    }
  }
};

// Joins the parts of this CTA's rows: four columns of a row to a thread.
template <Variant variant, Config config>
ATTUNE_DEVICE void join_and_store(const Params& params, const SharedStorage<variant, config>& shared, int m, int rank,
                                  int head, int batch) {
  constexpr int per_row = variant.dim / 4, parts = SharedStorage<variant, config>::parts;
  for (int i = threadIdx.x; i < shared.owned_rows * per_row; i += config.key_groups * 128) {
    const int local = i / per_row, column = i % per_row * 4, row = m * tile_rows + rank * shared.owned_rows + local;
    if (row >= params.seq_q) break;
    float top = minus_infinity;
#pragma unroll
    for (int part = 0; part < parts; ++part) top = fmaxf(top, shared.part_max[part][local]);
    float sum = 0, x[4] = {0, 0, 0, 0};
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const float max = shared.part_max[part][local];
      const float weight = max == minus_infinity ? 0.f : exp2_approx((max - top) * params.scale_log2);
      const float* o = &shared.part[part][local][column];
      sum += weight * shared.part_sum[part][local];
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] += weight * o[c];
    }
    const bool empty = sum == 0.f;
    const float inverse = empty ? 0.f : reciprocal_approx(sum);
    auto* out = static_cast<uint16_t*>(params.o) + batch * params.o_batch_stride + head * params.o_head_stride +
                row * params.o_row_stride + column;
    store_8_bytes(out, pack<variant.dtype>(x[0] * inverse, x[1] * inverse),
                  pack<variant.dtype>(x[2] * inverse, x[3] * inverse));
    if (column == 0 && params.lse != nullptr) {
      constexpr float ln2 = 0.693147180559945f;
      params.lse[batch * params.lse_batch_stride + head * params.lse_head_stride + row * params.lse_row_stride] =
          empty ? minus_infinity : (top * params.scale_log2 + log2_approx(sum)) * ln2;
    }
  }
}

template <Variant variant, Config config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage<variant, config>*>(dynamic_shared);
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int rank = config.cluster == 1 ? 0 : blockIdx.x % config.cluster, m = blockIdx.x / config.cluster;
  const int head = blockIdx.y, batch = blockIdx.z;
  if (warp == 0 && elect_one()) {
    shared.q_full.init(1);
    for (int g = 0; g < config.key_groups; ++g)
      for (int i = 0; i < config.stages; ++i)
        shared.k_full[g][i].init(1), shared.v_full[g][i].init(1), shared.free[g][i].init(4);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (config.cluster > 1) cluster_arrive_relaxed();
  Consumer<variant, config> consumer{params, shared, warp / 4, warp % 4, lane, elect_one(), m, head, batch};
  consumer.run(share_of<variant, config>(params, m, rank));
  if (config.cluster > 1) cluster_wait();
  consumer.leave_part(rank);
  if (config.cluster > 1)
    cluster_sync();
  else
    __syncthreads();
  join_and_store<variant, config>(params, shared, m, rank, head, batch);
}

#endif

}  // namespace attune::device::sm90_fwd_small
