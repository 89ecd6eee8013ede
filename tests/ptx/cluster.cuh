// Test kernels of a cluster of four CTAs: every CTA sends a row of words to every other, by each of the ways there are.
#pragma once

#include "kernels/common/cluster.cuh"
#include "kernels/common/mbarrier.cuh"

namespace attune::device::test_cluster {

enum class Operation : int32_t {
  ranks,
  load,  // each CTA fetches its rows, between two cluster barriers
  load_16_bytes,
  store,  // each CTA writes to the others, then the cluster barrier
  store_8_bytes,
  store_16_bytes,
  store_arrive,  // then an arrival on the other's barrier
  async_store,   // st.async
  async_8_bytes,
  async_16_bytes,
  bulk_copy,  // by the copy engine
};

struct Variant {};
struct Config {};

constexpr int ctas = 4;
constexpr int threads = 128;
constexpr int row_words = 4 * threads;

// Row `to` of CTA `from`, and so what row `from` of CTA `to` is after the exchange.
ATTUNE_SHARED_CODE uint32_t word(int from, int to, int i) {
  return static_cast<uint32_t>((from * ctas + to) * row_words + i);
}

struct Params {
  Operation operation;
  uint32_t* out;  // [CTA of the grid][from][row_words]; for ranks: [CTA][rank, size]
};

struct alignas(16) SharedStorage {
  uint32_t mine[ctas][row_words];      // to whom
  uint32_t received[ctas][row_words];  // from whom
  Mbarrier full;
};

#ifdef __CUDACC_RTC__

ATTUNE_DEVICE void exchange(Operation operation, SharedStorage& shared, int rank) {
  const int t = threadIdx.x;
  for (int peer = 0; peer < ctas; ++peer) {
    const uint32_t source = remote_address(shared.mine[rank], peer);  // what the peer has for us
    const uint32_t target = remote_address(shared.received[rank], peer);
    const uint32_t barrier = remote_address(&shared.full, peer);
    uint32_t quad[4];
    for (int i = 0; i < 4; ++i) quad[i] = shared.mine[peer][4 * t + i];
    switch (operation) {
      case Operation::load:
        for (int i = t; i < row_words; i += threads)
          shared.received[peer][i] = __float_as_uint(load_remote(source + 4 * i));
        break;
      case Operation::load_16_bytes:
        load_remote_16_bytes(quad, source + 16 * t);
        for (int i = 0; i < 4; ++i) shared.received[peer][4 * t + i] = quad[i];
        break;
      case Operation::store:
        for (int i = t; i < row_words; i += threads)
          store_remote(target + 4 * i, __uint_as_float(shared.mine[peer][i]));
        break;
      case Operation::store_8_bytes:
        for (int i = 2 * t; i < row_words; i += 2 * threads)
          store_remote(target + 4 * i, __uint_as_float(shared.mine[peer][i]),
                       __uint_as_float(shared.mine[peer][i + 1]));
        break;
      case Operation::store_16_bytes:
      case Operation::store_arrive:
        store_remote_16_bytes(target + 16 * t, quad);
        break;
      case Operation::async_store:
        for (int i = t; i < row_words; i += threads)
          store_remote_async(target + 4 * i, __uint_as_float(shared.mine[peer][i]), barrier);
        break;
      case Operation::async_8_bytes:
        for (int i = 2 * t; i < row_words; i += 2 * threads)
          store_remote_async(target + 4 * i, __uint_as_float(shared.mine[peer][i]),
                             __uint_as_float(shared.mine[peer][i + 1]), barrier);
        break;
      case Operation::async_16_bytes:
        store_remote_async_16_bytes(target + 16 * t, quad, barrier);
        break;
      default:
        if (t == 0) bulk_copy_remote(target, shared.mine[peer], row_words * 4, barrier);
    }
    if (operation == Operation::store_arrive) shared.full.arrive_remote(peer);
  }
}

template <Variant, Config>
ATTUNE_DEVICE void run(const Params& params) {
  __shared__ SharedStorage shared;
  const Operation operation = params.operation;
  const int rank = cluster_rank();
  if (operation == Operation::ranks) {
    params.out[2 * blockIdx.x] = rank;
    params.out[2 * blockIdx.x + 1] = cluster_size();
    return;
  }
  for (int to = 0; to < ctas; ++to) {
    for (int i = threadIdx.x; i < row_words; i += threads) {
      shared.mine[to][i] = word(rank, to, i);
      shared.received[to][i] = 0xffffffffu;
    }
  }
  fence_async_shared();
  if (threadIdx.x == 0) {
    const bool by_bytes = operation != Operation::store_arrive;
    shared.full.init(by_bytes ? 1 : ctas * threads);
    fence_mbarrier_init();
    if (by_bytes) shared.full.arrive_expect(sizeof shared.received);
  }
  cluster_sync();
  exchange(operation, shared, rank);
  switch (operation) {
    case Operation::load:
    case Operation::load_16_bytes:
    case Operation::store:
    case Operation::store_8_bytes:
    case Operation::store_16_bytes:
      cluster_sync();
      break;
    case Operation::store_arrive:
      shared.full.wait_cluster(0, "full");
      break;
    default:
      shared.full.wait(0, "full");
  }
  for (int from = 0; from < ctas; ++from)
    for (int i = threadIdx.x; i < row_words; i += threads)
      params.out[(blockIdx.x * ctas + from) * row_words + i] = shared.received[from][i];
  cluster_arrive_relaxed();
  cluster_wait();
}

#endif

}  // namespace attune::device::test_cluster
