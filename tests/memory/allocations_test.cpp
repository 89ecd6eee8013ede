// Memory that runs out at any point of a context's first call: it returns a status, and the process lives on. A program
// of its own, because it replaces operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "attune/attune.h"
#include "core/problem.hpp"
#include "tests/support/forward_call.hpp"

namespace {

// The allocation that fails, counted by all threads from when it is set; -1: none.
std::atomic<int64_t> allocations_left{-1};

void* allocated(size_t bytes, size_t alignment) {
  int64_t left = allocations_left.load();
  while (left >= 0 && !allocations_left.compare_exchange_weak(left, left - 1)) continue;
  if (left == 0) return nullptr;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(bytes) : std::aligned_alloc(alignment, rounded);
}

void* allocated_or_throw(size_t bytes, size_t alignment) {
  void* const memory = allocated(bytes == 0 ? 1 : bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Of the whole program: the library's objects are part of it.
void* operator new(size_t bytes) { return allocated_or_throw(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocated_or_throw(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace attune {
namespace {

// A context and its first call, of which the allocation number `failing` fails. False if there were fewer.
bool first_call_lives(const char* problem, int64_t failing) {
  test::ForwardCall call(desc_from(parse_problem(problem)));
  test::Numbers numbers(3);
  call.fill_lengths(numbers);
  call.fill_values(numbers);
  const attune_forward_args args = call.args();
  attune_options options{};
  options.struct_size = sizeof options;
  options.threads = 4;

  allocations_left = failing;
  attune_context* context = nullptr;
  attune_status status = attune_create(&options, &context);
  if (status == ATTUNE_OK) status = attune_forward(context, &call.desc, &args, nullptr);
  const bool failed = allocations_left.exchange(-1) == -1;

  EXPECT_TRUE(status == ATTUNE_OK || status == ATTUNE_OUT_OF_MEMORY) << status << ": " << attune_last_error();
  EXPECT_TRUE(status == ATTUNE_OK || failed) << attune_last_error();
  if (context != nullptr) {  // as good as before
    EXPECT_EQ(attune_forward(context, &call.desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
  }
  attune_destroy(context);
  return failed;
}

TEST(Allocations, AnyOfAFirstCallMayFail) {
  for (const char* problem :
       {"fwd b2 h4/2 q100 k70 d16 bf16", "fwd b2 h8/8 q1 k1500 d16 f32", "fwd b1 h1/1 q1 k1 d8 f32"}) {
    int64_t failing = 0;
    while (failing < 5000 && first_call_lives(problem, failing)) ++failing;
    EXPECT_GT(failing, 5) << problem;
    EXPECT_LT(failing, 5000) << problem << ": it has no end";
  }
}

}  // namespace
}  // namespace attune
