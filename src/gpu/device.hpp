// One GPU: what kernels need to know of it to choose a configuration, and its primary context.
#pragma once

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
  const Driver& driver() const { return driver_; }

  // The primary context, retained on first use.
  CUcontext context();

 private:
  const Driver& driver_;
  CUdevice handle_ = 0;
  DeviceProperties properties_;
  std::once_flag retained_;
  CUcontext context_ = nullptr;
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
