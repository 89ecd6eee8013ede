// What a repeated call costs the host beyond the driver's own launch: no allocation, and little time.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>

#include "dispatch/context.hpp"
#include "gpu/runtime.hpp"
#include "jit/embedded.hpp"
#include "tests/gpu/fake_driver.hpp"
#include "tests/gpu/toy_kernel.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/sanitizers.hpp"

namespace {
thread_local uint64_t allocations = 0;
}

// Not inlined: seen side by side, malloc and free would look mismatched to the compiler.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace attune::gpu {
namespace {

class HotPath : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_NVRTC();
    jit::StoreOptions options;
    options.sources = jit::Sources(scratch / "source");
    options.cache_directory = scratch / "cache";
    options.cache_bytes = uint64_t{64} << 20;
    options.find_compiler = jit::find_nvrtc;
    jit::write_text(scratch / "source/kernels/test/toy.cuh", toy::device_text);
    for (const jit::EmbeddedFile* file = jit::embedded_files; file->path != nullptr; ++file)
      jit::write_text(scratch / "source/" + file->path, file->text);
    context = std::make_unique<Context>(attune_options{}, std::make_unique<Runtime>(driver, options));
    fake::contexts = {fake::primary(0)};

    Problem problem = parse_problem("fwd b1 h77/77 q64 k64 d32 f16");
    problem.device_kind = DeviceKind::cuda;
    desc = desc_from(problem);
    args.struct_size = sizeof args;
    args.k = args.v = fake::handle<void*>(0x30000);
    args.o = fake::handle<void*>(0x40000);
    args.lse = fake::handle<float*>(0x60000);
    args.workspace = fake::handle<void*>(0x50000);
    args.workspace_bytes = 512;
    fake::state.take_notes = false;
  }

  void call(uintptr_t q) {
    args.q = fake::handle<void*>(q);
    context->forward(desc, operands_of(args), nullptr);
  }

  // The quickest of several rounds of 1000 calls over `sets` pointers, in seconds per call.
  double seconds_per_call(uintptr_t sets) {
    double best = 1;
    for (int round = 0; round < 50; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      for (uintptr_t i = 0; i < 1000; ++i) call(0x100000 + i % sets * 0x1000);
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 1000);
    }
    return best;
  }

  jit::Scratch scratch;
  Driver driver = fake::fresh();
  std::unique_ptr<Context> context;
  attune_forward_desc desc{};
  attune_forward_args args{};
};

TEST_F(HotPath, AllocatesNothing) {
  for (uintptr_t i = 0; i < 64; ++i) call(0x100000 + i * 0x1000);
  const uint64_t before = allocations;
  for (uintptr_t i = 0; i < 64; ++i) call(0x100000 + i * 0x1000);
  EXPECT_EQ(allocations, before);
}

TEST_F(HotPath, CostsLessThanItMay) {
  if (test::under_sanitizers) GTEST_SKIP() << "timings of a build with sanitizers say nothing";
  const double repeated = seconds_per_call(1) * 1e6, cycling = seconds_per_call(64) * 1e6;
  RecordProperty("repeated_us", std::to_string(repeated));
  RecordProperty("cycling_us", std::to_string(cycling));
  EXPECT_LT(repeated, 1.5) << "microseconds, the same pointers again";
  EXPECT_LT(cycling, 4.0) << "microseconds, 64 sets of pointers with tensor maps";
}

}  // namespace
}  // namespace attune::gpu
