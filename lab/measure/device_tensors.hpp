// The tensors of one call in device memory: a copy of host tensors, at a place that differs from one making to the
// next.
#pragma once

#include <array>
#include <vector>

#include "lab/check/tensors.hpp"
#include "lab/measure/gpu.hpp"

namespace attune::lab {

class DeviceTensors {
 public:
  // Copies inputs and poison alike. `placement` seeds the gaps between the tensors.
  DeviceTensors(Gpu& gpu, const Tensors& host, uint64_t workspace_bytes, uint64_t placement);
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;
  ~DeviceTensors();

  const Operands& operands() const { return operands_; }
  // Every buffer, what stands around its elements included, back into host tensors of the same shape.
  void download(Tensors& to) const;
  size_t bytes() const { return bytes_; }  // of the tensors, gaps left out

 private:
  Gpu& gpu_;
  DevicePointer slab_ = 0;
  Operands operands_;
  std::array<std::vector<const void*>, operand_count> parts_;  // what operands with parts point to
  size_t bytes_ = 0;
  std::vector<DevicePointer> places_;  // of the buffers, in their order
};

// What `bytes()` will be, before anything is allocated.
size_t tensor_bytes(const Tensors& host);

}  // namespace attune::lab
