// Compiles the test kernels of this folder and runs them on a GPU.
//
// Each .cuh here is a kernel of the usual form (Variant, Config, Params, run), seen by the test as well. On a GPU the
// kernels run with bounded waits, and a launch that does not end closes the program with its name.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <span>
#include <string>
#include <vector>

#include "gpu/driver.hpp"
#include "jit/compile.hpp"
#include "jit/source.hpp"
#include "jit/unit.hpp"

namespace attune::ptx {

extern const jit::SourceFile test_sources[];  // made by embed.cmake; a file without a path closes the table

enum class Waits { plain, bounded };

// Compiled once per process. Throws ATTUNE_COMPILE_ERROR.
const jit::Compiled& compiled(const jit::DeviceUnit& unit, Waits waits, const std::string& arch = "sm_90a");

// Skips where there is no sm_90 GPU.
class PtxTest : public testing::Test {
 protected:
  void SetUp() override;

  // In order, on one stream.
  template <typename Params>
  void launch(const jit::DeviceUnit& unit, jit::Dim3 grid, const Params& params, Waits waits = Waits::bounded,
              bool programmatic = false) {
    launch_bytes(unit, grid, &params, waits, programmatic);
  }
  void finish();  // until all launches are done; throws what went wrong

  const gpu::Driver& driver() { return gpu::driver(); }

 private:
  void launch_bytes(const jit::DeviceUnit& unit, jit::Dim3 grid, const void* params, Waits waits, bool programmatic);
};

// Memory of the GPU.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::span<const T> values) : Buffer(values.size()) { write(values); }
  Buffer(size_t count, uint8_t byte) : Buffer(count) {
    gpu::driver().check(gpu::driver().cuMemsetD8_v2(memory_, byte, count * sizeof(T)), "cuMemsetD8");
  }
  ~Buffer() { gpu::driver().cuMemFree_v2(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(std::span<const T> values) {
    gpu::driver().check(gpu::driver().cuMemcpyHtoD_v2(memory_, values.data(), values.size_bytes()), "cuMemcpyHtoD");
  }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    gpu::driver().check(gpu::driver().cuMemcpyDtoH_v2(values.data(), memory_, count_ * sizeof(T)), "cuMemcpyDtoH");
    return values;
  }
  template <typename U = T>
  U* pointer() const {
    return std::bit_cast<U*>(memory_);
  }

 private:
  explicit Buffer(size_t count) : count_(count) {
    gpu::driver().check(gpu::driver().cuMemAlloc_v2(&memory_, count * sizeof(T)), "cuMemAlloc");
  }

  size_t count_;
  gpu::CUdeviceptr memory_ = 0;
};

template <typename T>
Buffer(std::vector<T>) -> Buffer<T>;

// How two lists differ, for a message: the count, and the first place. "" if they do not.
template <typename T>
std::string difference(const std::vector<T>& found, const std::vector<T>& expected) {
  if (found.size() != expected.size()) return fmt::format("{} values, not {}", found.size(), expected.size());
  size_t count = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i] != expected[i] && count++ == 0) first = i;
  if (count == 0) return "";
  return fmt::format("{} of {} differ; the first, at {}, is {}, not {}", count, found.size(), first, found[first],
                     expected[first]);
}

}  // namespace attune::ptx
