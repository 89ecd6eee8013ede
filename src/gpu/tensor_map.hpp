// Tensor maps for the copy engine (TMA) of sm_90: what is constant for a plan, and the encoded maps, which also depend
// on a pointer and are remembered, since encoding one costs about a microsecond.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/problem.hpp"
#include "gpu/driver.hpp"

namespace attune::gpu {

// Innermost dimension first, as the hardware counts. Trivially copyable, without padding.
struct TensorMapSpec {
  std::array<uint64_t, 5> dims{};          // elements
  std::array<uint64_t, 4> stride_bytes{};  // of dims 1..rank-1: multiples of 16, below 2^40
  std::array<uint32_t, 5> box{};           // elements, at most 256 each; box[0] must fit the swizzle's span
  uint32_t rank = 0;                       // 1..5
  Dtype dtype = Dtype::f16;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  uint32_t element_bytes = 0;  // of elements that are no numbers to the engine: 1, 2 or 4; 0: those of `dtype`
};

static_assert(std::has_unique_object_representations_v<TensorMapSpec>, "compared and hashed by its bytes");

inline constexpr uintptr_t tensor_map_alignment = 16;  // of the pointer

// Why no map can be encoded for it ("stride 1 is 24 bytes, not a multiple of 16"), or "". The rules of
// cuTensorMapEncodeTiled, for a kernel's refusal() to ask before there is a pointer or a GPU.
std::string tensor_map_refusal(const TensorMapSpec& spec);

// The map of this tensor at `pointer`, to be copied before the next call: the place is this thread's and is used again.
// No allocation and no lock once a thread has asked for the same before.
const device::TensorMap& tensor_map(const Driver& driver, const TensorMapSpec& spec, const void* pointer);

}  // namespace attune::gpu
