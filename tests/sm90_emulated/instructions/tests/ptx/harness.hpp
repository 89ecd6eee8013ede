// Stands in for tests/ptx/harness.hpp, so that the tests of the instructions on a card are tests of the emulated ones.
#pragma once

#include <gmock/gmock.h>

#include "tests/sm90_emulated/instances.hpp"
// The emulator must come first.
#define PtxTest PtxTestOnACard
#define Buffer BufferOnACard
#include "../../../../ptx/harness.hpp"
#undef PtxTest
#undef Buffer

#include "tests/sm90_emulated/tensor_map.hpp"

// The kernels, with what each of them calls its shared memory.
#pragma push_macro("__shared__")

#undef __shared__
#define __shared__                                                                          \
  auto& shared = *static_cast<SharedStorage*>(::attune::emulator::dynamic_shared_memory()); \
  if (false) extern __attribute__((unused))
#include "tests/ptx/cluster.cuh"
#include "tests/ptx/sync.cuh"

#undef __shared__
#define __shared__                                                                          \
  int attune_nothing [[maybe_unused]];                                                      \
  auto* const shared = static_cast<uint32_t*>(::attune::emulator::dynamic_shared_memory()); \
  if (false) extern __attribute__((unused))
#include "tests/ptx/wgmma.cuh"

namespace attune::device::test_warp {
inline constexpr struct {
  operator uint32_t*() const { return static_cast<uint32_t*>(emulator::dynamic_shared_memory()); }
} shared;
inline constexpr struct {
  operator Mbarrier&() const { return *reinterpret_cast<Mbarrier*>(static_cast<uint32_t*>(shared) + 256); }
} barrier;
}  // namespace attune::device::test_warp
#undef __shared__
#define __shared__ if (false)
#include "tests/ptx/warp.cuh"

#pragma pop_macro("__shared__")

namespace attune::ptx {

class PtxTest : public testing::Test {
 protected:
  template <typename Params>
  void launch(const jit::DeviceUnit& unit, jit::Dim3 grid, const Params& params, Waits = Waits::bounded) {
    constexpr size_t enough_smem = 200 << 10;
    const emulator::Instance& instance = emulator::find_instance(unit);
    const unsigned registers = 65536 / unit.threads / 8 * 8;
    notes_ = emulator::launch({grid, unit.cluster, unit.threads, enough_smem, std::min(registers, 168u)}, seed_++,
                              [&] { instance.run(&params); });
  }
  void finish() { EXPECT_THAT(notes_, testing::IsEmpty()); }
  const gpu::Driver& driver() {
    static const gpu::Driver for_maps = emulator::driver_for_maps();
    return for_maps;
  }

 private:
  uint64_t seed_ = 0;
  std::vector<std::string> notes_;
};

template <typename T>
class Buffer {
 public:
  explicit Buffer(std::span<const T> values) : values_(values.begin(), values.end()) {}
  Buffer(size_t count, uint8_t byte) : values_(count) { std::memset(values_.data(), byte, count * sizeof(T)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::vector<T> read() const { return values_; }
  template <typename U = T>
  U* pointer() const {
    return reinterpret_cast<U*>(const_cast<T*>(values_.data()));
  }

 private:
  std::vector<T> values_;
};

template <typename T>
Buffer(std::vector<T>) -> Buffer<T>;

}  // namespace attune::ptx
