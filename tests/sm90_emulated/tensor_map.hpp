// Tensor maps as the emulated copy engine reads them: what cuTensorMapEncodeTiled was given, packed into a CUtensorMap.
#pragma once

#include <cstdint>

#include "gpu/driver.hpp"

namespace attune::emulator {

struct BoxMap {
  static constexpr uint64_t seal = 0x61747475'6e652121;
  uint64_t magic;
  char* base;
  uint64_t dims[5];
  uint64_t strides[4];  // in bytes
  uint16_t box[5];
  uint8_t rank, element_bytes, swizzle;
};
static_assert(sizeof(BoxMap) <= sizeof(device::TensorMap));

// A driver that can encode tensor maps and nothing else.
gpu::Driver driver_for_maps();

}  // namespace attune::emulator
