// One GPU: what kernels need to know of it to choose a configuration, and its primary context.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/driver.hpp"

namespace attune::gpu {

struct DeviceProperties {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  int sm_count = 0;
  int smem_per_block_bytes = 0;  // the most a block may ask for
  int smem_per_sm_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  // Clusters of 1, 2, 4, 8 and 16 blocks that run at a time, a block to a multiprocessor. Those of a cluster lie
  // together in one of the GPU's parts, so these are fewer than fit by number; 0: there is no room for such a cluster.
  std::array<int, 5> clusters = {};

  int clusters_of(int blocks) const { return clusters.at(std::countr_zero(static_cast<unsigned>(blocks))); }
  int capability() const { return major * 10 + minor; }
  std::string arch() const;  // as NVRTC spells it: "sm_80", "sm_90a"
};

// What is used where no GPU is present: one typical card for each architecture of the manifest (A100, A10, L4, H200).
const std::vector<DeviceProperties>& typical_devices();
const DeviceProperties& typical_device(std::string_view arch);  // throws ATTUNE_INVALID_ARGUMENT naming those there are

// How many blocks of a kernel fit on one multiprocessor, by the rules of the occupancy tables.
int blocks_per_sm(const DeviceProperties& device, int registers, int threads, int smem_bytes);

// A device that is there. The primary context is shared with the CUDA runtime, and so with torch.
class Device {
 public:
  Device(const Driver& driver, int index);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const DeviceProperties& properties() const { return properties_; }
  // Asks the driver how many clusters run at a time, on first use: that takes a context and a kernel. Before, and where
  // the driver has no PTX compiler, `clusters` is what fits by number, and no cluster beyond the portable size.
  void count_clusters();
  const Driver& driver() const { return driver_; }

  // The primary context, retained on first use.
  CUcontext context();

 private:
  const Driver& driver_;
  CUdevice handle_ = 0;
  DeviceProperties properties_;
  std::once_flag retained_, counted_;
  CUcontext context_ = nullptr;
};

// The largest cluster that every GPU with clusters can run.
inline constexpr int largest_portable_cluster = 8;

// Loading is not allowed while any thread captures in global mode, unless this thread says that it knows.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    driver_.check(driver_.cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCapture() { driver_.cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Makes a device's context current for a scope; where it already is, that costs one look.
class CurrentContext {
 public:
  CurrentContext(const Driver& driver, CUcontext context) : driver_(driver) {
    CUcontext current = nullptr;
    driver_.check(driver_.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == context) return;
    driver_.check(driver_.cuCtxPushCurrent_v2(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

}  // namespace attune::gpu
