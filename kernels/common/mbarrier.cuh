// mbarrier: the hardware's arrival counter in shared memory, with transaction bytes for the copy engine.
//
// Phases: a barrier starts in phase 0. wait(parity) returns once the phase of that parity has completed, so consumers
// start with parity 0, and producers, who find every slot free at first, with parity 1.
//
// With ATTUNE_BOUNDED_WAITS defined, a wait that takes longer than ATTUNE_BOUNDED_WAIT_CYCLES fails an assertion named
// after its barrier: a barrier that never completes is a defect, and a hang says nothing about it. For debugging only:
// the call makes products wait for each other, and registers do not move between warpgroups (registers.cuh).
#pragma once

#include "kernels/common/types.cuh"

#ifndef __CUDACC_RTC__
namespace attune::device {
struct Mbarrier {
  uint64_t state;
};
}  // namespace attune::device
#else
namespace attune::device {

ATTUNE_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#ifdef ATTUNE_BOUNDED_WAITS
#ifndef ATTUNE_BOUNDED_WAIT_CYCLES
#define ATTUNE_BOUNDED_WAIT_CYCLES 4'000'000'000ll  // two seconds
#endif

// What printf was given before a trap is lost with the context; the text of a failed assertion is not. It says which
// CTA and thread; the place of the line number is taken by the parity.
__device__ __noinline__ inline void report_endless_wait(const char* name, uint32_t parity) {
  __assertfail(name, "waits for ever on the barrier named below, parity", parity, "wait", 1);
}

struct WaitBound {
  const long long start = clock64();
  ATTUNE_DEVICE void check(const char* name, uint32_t parity) const {
    if (clock64() - start > ATTUNE_BOUNDED_WAIT_CYCLES) report_endless_wait(name, parity);
  }
};
#else
struct WaitBound {
  ATTUNE_DEVICE void check(const char*, uint32_t) const {}
};
#endif

// True in exactly one lane. A plain threadIdx test makes the compiler emit a loop over lanes around warp-wide
// instructions; elect.sync does not.
ATTUNE_DEVICE bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

struct Mbarrier {
  uint64_t state;

  ATTUNE_DEVICE void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&state)), "r"(arrivals));
  }

  ATTUNE_DEVICE void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&state)) : "memory");
  }

  // Arrives and announces the bytes that copies will deliver in this phase.
  ATTUNE_DEVICE void arrive_expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&state)), "r"(bytes)
                 : "memory");
  }

  // Arrives on the barrier at the same place in another CTA of the cluster.
  ATTUNE_DEVICE void arrive_remote(uint32_t cta) {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(shared_address(&state)),
        "r"(cta)
        : "memory");
  }

  ATTUNE_DEVICE bool test(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&state)), "r"(parity)
        : "memory");
    return done != 0;
  }

  ATTUNE_DEVICE bool try_wait(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&state)), "r"(parity)
        : "memory");
    return done != 0;
  }

  // What other CTAs wrote before they arrived is visible after this one, too.
  ATTUNE_DEVICE bool try_wait_cluster(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(&state)), "r"(parity)
        : "memory");
    return done != 0;
  }

  // `name` is what a bounded wait prints.
  ATTUNE_DEVICE void wait(uint32_t parity, const char* name) const {
    WaitBound bound;
    while (!try_wait(parity)) bound.check(name, parity);
  }
  // For data that came by store_remote; what the copy engine or st.async brought needs only wait().
  ATTUNE_DEVICE void wait_cluster(uint32_t parity, const char* name) const {
    WaitBound bound;
    while (!try_wait_cluster(parity)) bound.check(name, parity);
  }
};

// Where a role stands in a ring of slots, each with its own barriers, and the parity of the phase it waits for next.
template <int slots>
struct Ring {
  int slot = 0;
  uint32_t parity = 0;

  ATTUNE_DEVICE void advance() {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// After init, before another thread, CTA or the copy engine may touch a barrier.
ATTUNE_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Orders ordinary shared-memory writes before reads by wgmma and the copy engine. Every writing thread needs it.
ATTUNE_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace attune::device
#endif
