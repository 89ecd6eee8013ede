// Test kernels of the copy engine. Shared memory is filled with poison first and written out as it lies afterwards.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"
#include "kernels/common/tma.cuh"

namespace attune::device::test_tma {

enum class Operation : int32_t { load, multicast, store, reduce_add, bulk_load, bulk_store, bulk_reduce_add };

struct Variant {};
struct Config {};

// A box is at most this many bytes. A multicast fetches one per CTA of the cluster.
constexpr int box_limit_bytes = 16384;
constexpr int cluster_ctas = 2;
constexpr uint8_t poison = 0xa5;

struct Params {
  TensorMap map;
  Operation operation;
  int32_t bytes;           // of the box, or of the block
  int32_t coordinates[5];  // in a multicast, CTA r begins r * rows_per_cta rows further
  int32_t rows_per_cta;
  uint64_t evict;
  const uint8_t* in;  // one image or block per CTA
  uint8_t* out;
};

struct alignas(1024) SharedStorage {
  uint8_t tile[cluster_ctas * box_limit_bytes];
  Mbarrier full;
};

#ifdef __CUDACC_RTC__

ATTUNE_DEVICE void receive(const Params& params, SharedStorage& shared) {
  const int* c = params.coordinates;
  const int boxes = params.operation == Operation::multicast ? cluster_ctas : 1;
  for (int i = threadIdx.x; i < boxes * params.bytes; i += blockDim.x) shared.tile[i] = poison;
  fence_async_shared();
  if (threadIdx.x == 0) {
    shared.full.init(1);
    fence_mbarrier_init();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    shared.full.arrive_expect(boxes * params.bytes);
    const auto evict = static_cast<Evict>(params.evict);
    if (params.operation == Operation::load) {
      tma_prefetch_map(params.map);
      tma_prefetch_5d(params.map, c[0], c[1], c[2], c[3], c[4]);
      tma_load_5d(shared.tile, params.map, shared.full, c[0], c[1], c[2], c[3], c[4], evict);
    } else if (params.operation == Operation::multicast) {
      const int rank = cluster_rank();
      tma_load_5d_multicast(shared.tile + rank * params.bytes, params.map, shared.full, (1 << cluster_ctas) - 1, c[0],
                            c[1] + rank * params.rows_per_cta, c[2], c[3], c[4], evict);
    } else {
      bulk_load(shared.tile, params.in, params.bytes, shared.full);
    }
  }
  shared.full.wait(0, "full");
  uint8_t* const out = params.out + blockIdx.x * boxes * params.bytes;
  for (int i = threadIdx.x; i < boxes * params.bytes; i += blockDim.x) out[i] = shared.tile[i];
  cluster_sync();
}

ATTUNE_DEVICE void send(const Params& params, SharedStorage& shared) {
  const int* c = params.coordinates;
  const uint8_t* const in = params.in + blockIdx.x * params.bytes;
  for (int i = threadIdx.x; i < params.bytes; i += blockDim.x) shared.tile[i] = in[i];
  fence_async_shared();
  __syncthreads();
  if (threadIdx.x != 0) return;
  switch (params.operation) {
    case Operation::store:
      tma_store_5d(params.map, shared.tile, c[0], c[1], c[2], c[3], c[4]);
      break;
    case Operation::reduce_add:
      tma_reduce_add_5d(params.map, shared.tile, c[0], c[1], c[2], c[3], c[4]);
      break;
    case Operation::bulk_store:
      bulk_store(params.out + blockIdx.x * params.bytes, shared.tile, params.bytes);
      break;
    default:
      bulk_reduce_add(reinterpret_cast<float*>(params.out), reinterpret_cast<const float*>(shared.tile), params.bytes);
  }
  tma_store_commit();
  tma_store_wait_read<0>();
  tma_store_wait<0>();
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  extern __shared__ uint8_t dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedStorage*>(dynamic_shared);
  if (shared_address(dynamic_shared) % alignof(SharedStorage) != 0) __trap();
  switch (params.operation) {
    case Operation::load:
    case Operation::multicast:
    case Operation::bulk_load:
      return receive(params, shared);
    default:
      return send(params, shared);
  }
}

#endif

}  // namespace attune::device::test_tma
