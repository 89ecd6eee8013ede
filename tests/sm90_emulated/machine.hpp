// A Hopper multiprocessor on the CPU, as far as kernels can tell: the threads of all CTAs of a cluster are fibres, and
// the copy engine and the tensor cores do their work at a moment that a seed chooses.
//
// What this file declares is the machine as the emulated instructions (instructions/) see it. harness.hpp runs kernels.
//
// One thread of the system at a time may use it.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "jit/unit.hpp"
#include "kernels/common/types.cuh"

namespace attune::emulator {

// A mistake of the kernel that is certain: a deadlock, or an instruction that the hardware does not allow.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Launch {
  jit::Dim3 grid, cluster;
  unsigned threads = 0;
  size_t smem_bytes = 0;
  unsigned registers_per_thread = 0;  // at the start, which is all that the threads can exchange later
};

// Runs every cluster of the grid, one after the other. `seed` chooses in which order warps run and how late copies and
// products are; results must not depend on it. Throws Failure. Returns what looks wrong but need not be: notes for
// somebody who finds the results wrong.
std::vector<std::string> launch(const Launch& launch, uint64_t seed, const std::function<void()>& body);

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index thread_index, block_index, block_size, grid_size;  // of the thread that runs

[[noreturn]] void fail(const std::string& what);              // says which thread does it
void note(const std::string& kind, const std::string& what);  // the same, for the notes

// Shared memory. An address is that of PTX: an offset into the CTA's own memory, or the window of another CTA.
void* dynamic_shared_memory();
uint32_t shared_address(const void* pointer);
void* shared_pointer(uint32_t address, size_t bytes);  // of any CTA of the cluster
uint32_t remote_address(uint32_t address, uint32_t cta);
uint32_t cluster_rank();
uint32_t cluster_size();

// Lets other warps run before this one goes on, now and then.
void maybe_pause();

int64_t clock();  // rises, and lets others run

// Calls combine with the arguments of all lanes of `mask` when the last of them has come; they must all have come to
// the same instruction.
using Combine = void (*)(void* const (&arguments)[32]);
void warp_collective(const char* instruction, uint32_t mask, void* argument, Combine combine);
void warp_barrier(uint32_t mask);
bool elect_one();

void block_barrier();
bool block_or(bool value);
void named_barrier(uint32_t id, uint32_t threads, bool wait);
void cluster_arrive();
void cluster_wait();

// mbarriers: what lies at `state`.
void mbarrier_init(uint64_t* state, uint32_t arrivals);
void mbarrier_expect(uint64_t* state, uint32_t bytes);
void mbarrier_arrive(uint64_t* state);
bool mbarrier_test(const uint64_t* state, uint32_t parity);
bool mbarrier_try_wait(const uint64_t* state, uint32_t parity);  // may give up, as the hardware does
void mbarrier_wait(const uint64_t* state, uint32_t parity, const char* name);

void give_registers(unsigned count);
void take_registers(unsigned count);

// Products of a warpgroup.
struct ProductForm {
  int n;
  device::Dtype dtype;
  bool a_is_mn_major, b_is_mn_major, a_in_registers;
  bool operator==(const ProductForm&) const = default;
};
// `a_registers` is null if A is in shared memory.
void issue_product(const ProductForm& form, float* accumulators, const uint32_t* a_registers, uint64_t a, uint64_t b,
                   bool accumulate);
void product_fence();
void commit_products();
void wait_for_products(unsigned pending);

// Copies. What they write holds NaN until they are done.
enum class Transfer { copy, add_floats };
void load_box(void* destination, const device::TensorMap& map, uint64_t* barrier, uint32_t cta_mask,
              const int (&coordinates)[5]);  // cta_mask 0: this CTA alone
void check_map(const device::TensorMap& map);
void store_box(const device::TensorMap& map, const void* source, const int (&coordinates)[5], Transfer transfer);
void load_bytes(void* destination, const void* source, uint32_t bytes, uint64_t* barrier);
void store_bytes(void* destination, const void* source, uint32_t bytes, Transfer transfer);
void commit_stores();
void wait_for_stores(unsigned pending, bool reads_only);
void copy_to_remote(uint32_t address, const void* source, uint32_t bytes, uint32_t barrier);
void store_to_remote(uint32_t address, const void* value, uint32_t bytes, uint32_t barrier);  // st.async
void copy_16_bytes(void* destination, const void* source, int bytes);                         // cp.async
void commit_copies();
void wait_for_copies(unsigned pending);
void arrive_after_copies(uint64_t* barrier);

}  // namespace attune::emulator
