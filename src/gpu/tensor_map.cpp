#include "gpu/tensor_map.hpp"

#include <xxhash.h>

#include <cstring>
#include <memory>

namespace attune::gpu {
namespace {

constexpr uint64_t stride_unit_bytes = 16, stride_limit_bytes = uint64_t{1} << 40, dim_limit = uint64_t{1} << 32;
constexpr uint32_t box_limit = 256;

uint64_t swizzle_span_bytes(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_32B:
      return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B:
      return 128;
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      break;
  }
  return 0;
}

CUtensorMapDataType type_of(const TensorMapSpec& spec) {
  if (spec.element_bytes == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (spec.element_bytes == 2) return CU_TENSOR_MAP_DATA_TYPE_UINT16;
  if (spec.element_bytes == 4) return CU_TENSOR_MAP_DATA_TYPE_UINT32;
  switch (spec.dtype) {
    case Dtype::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case Dtype::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Dtype::f32:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

struct Key {
  TensorMapSpec spec;
  uint64_t pointer;
};
static_assert(std::has_unique_object_representations_v<Key>);

// Four ways of 256 sets: the maps of 64 sets of tensors fit with room to spare.
class Table {
 public:
  const device::TensorMap& get(const Driver& driver, const TensorMapSpec& spec, const void* pointer) {
    const Key key{spec, reinterpret_cast<uintptr_t>(pointer)};
    Set& set = sets_[XXH3_64bits(&key, sizeof key) % set_count];
    for (Entry& entry : set.entries)
      if (std::memcmp(&entry.key, &key, sizeof key) == 0) return entry.map;
    Entry& entry = set.entries[set.next++ % ways];
    entry.key = {};  // so that a failure leaves nothing half made
    encode(driver, spec, pointer, entry.map);
    entry.key = key;
    return entry.map;
  }

 private:
  static constexpr size_t set_count = 256, ways = 4;
  struct Entry {
    device::TensorMap map{};
    Key key{};  // rank 0: empty
  };
  struct Set {
    Entry entries[ways];
    unsigned next = 0;
  };

  static void encode(const Driver& driver, const TensorMapSpec& spec, const void* pointer, device::TensorMap& map) {
    if (reinterpret_cast<uintptr_t>(pointer) % tensor_map_alignment != 0)
      fail(ATTUNE_INTERNAL_ERROR, "a tensor map for {}, which is not aligned to {} bytes", pointer,
           tensor_map_alignment);
    const uint32_t element_strides[5] = {1, 1, 1, 1, 1};
    driver.check(driver.cuTensorMapEncodeTiled(&map, type_of(spec), spec.rank, const_cast<void*>(pointer),
                                               spec.dims.data(), spec.stride_bytes.data(), spec.box.data(),
                                               element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, spec.swizzle,
                                               spec.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                 "cuTensorMapEncodeTiled");
  }

  Set sets_[set_count];
};

}  // namespace

std::string tensor_map_refusal(const TensorMapSpec& spec) {
  if (spec.rank < 1 || spec.rank > 5) return fmt::format("rank {} is not 1..5", spec.rank);
  for (uint32_t i = 0; i < spec.rank; ++i) {
    if (spec.dims[i] < 1 || spec.dims[i] > dim_limit)
      return fmt::format("dimension {} is {}, not 1..2^32", i, spec.dims[i]);
    if (spec.box[i] < 1 || spec.box[i] > box_limit) return fmt::format("box {} is {}, not 1..256", i, spec.box[i]);
  }
  for (uint32_t i = 0; i + 1 < spec.rank; ++i)
    if (spec.stride_bytes[i] % stride_unit_bytes != 0 || spec.stride_bytes[i] >= stride_limit_bytes)
      return fmt::format("stride {} is {} bytes, not a multiple of 16 below 2^40", i + 1, spec.stride_bytes[i]);
  const uint64_t row_bytes =
      spec.box[0] * (spec.element_bytes != 0 ? spec.element_bytes : static_cast<uint64_t>(bytes_of(spec.dtype)));
  if (row_bytes % stride_unit_bytes != 0) return fmt::format("a box row is {} bytes, not a multiple of 16", row_bytes);
  if (const uint64_t span = swizzle_span_bytes(spec.swizzle); span != 0 && row_bytes > span)
    return fmt::format("a box row is {} bytes, more than the swizzle's {}", row_bytes, span);
  return {};
}

const device::TensorMap& tensor_map(const Driver& driver, const TensorMapSpec& spec, const void* pointer) {
  thread_local const auto table = std::make_unique<Table>();
  return table->get(driver, spec, pointer);
}

}  // namespace attune::gpu
