// Device memory with an owner, for checks and tests.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "gpu/driver.hpp"

namespace attune::lab {

// A context must be current wherever one of these is made, used or destroyed.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const gpu::Driver& driver, size_t bytes) : driver_(&driver), bytes_(bytes) {
    driver.check(driver.cuMemAlloc_v2(&address_, bytes == 0 ? 1 : bytes), "cuMemAlloc");
  }
  DeviceMemory(const gpu::Driver& driver, std::span<const std::byte> data) : DeviceMemory(driver, data.size()) {
    driver.check(driver.cuMemcpyHtoD_v2(address_, data.data(), data.size()), "cuMemcpyHtoD");
    // It returns with the data staged, not arrived, and a stream of one's own does not wait for the legacy one.
    driver.check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory() {
    if (driver_ != nullptr) driver_->cuMemFree_v2(address_);
  }

  // Waits for everything before it on the legacy stream.
  void download(std::span<std::byte> to) const {
    driver_->check(driver_->cuMemcpyDtoH_v2(to.data(), address_, to.size()), "cuMemcpyDtoH");
  }

  gpu::CUdeviceptr address() const { return address_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as(size_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(address_ + offset_bytes);  // NOLINT(performance-no-int-to-ptr): the driver's own form
  }

 private:
  const gpu::Driver* driver_ = nullptr;
  gpu::CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
};

}  // namespace attune::lab
