#include "lab/measure/device_tensors.hpp"

#include <bit>

#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr size_t alignment = 512;  // what the common allocators give
constexpr size_t gap_steps = 128;  // gaps of up to 64 KiB: enough to move a tensor over the sets of any cache
constexpr size_t workspace_alignment = 512;

size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

size_t tensor_bytes(const Tensors& host) {
  size_t bytes = 0;
  for_each_buffer(host, [&](const OperandRow&, size_t, const Buffer& buffer) { bytes += buffer.data_bytes(); });
  return bytes;
}

DeviceTensors::DeviceTensors(Gpu& gpu, const Tensors& host, uint64_t workspace_bytes, uint64_t placement)
    : gpu_(gpu), bytes_(tensor_bytes(host)) {
  stats::Random random(placement);
  size_t size = 0;
  const auto place = [&](size_t bytes) {
    const size_t offset = size + random.below(gap_steps) * alignment;
    size = offset + aligned(bytes);
    return offset;
  };
  std::vector<size_t> offsets;
  for_each_buffer(
      host, [&](const OperandRow&, size_t, const Buffer& buffer) { offsets.push_back(place(buffer.whole().size())); });
  const size_t workspace_offset = place(workspace_bytes + workspace_alignment);
  slab_ = gpu_.allocate(size);
  size_t index = 0;
  for_each_buffer(host, [&](const OperandRow& row, size_t, const Buffer& buffer) {
    const DevicePointer begin = slab_ + offsets[index++];
    gpu_.upload(begin, buffer.whole());
    places_.push_back(begin);
    const void* const pointer = std::bit_cast<void*>(begin + buffer.offset_bytes());
    if (!row.per_part) {
      operands_.set(row.operand, pointer);
      return;
    }
    std::vector<const void*>& parts = parts_[static_cast<size_t>(row.operand)];
    parts.push_back(pointer);
    operands_.set(row.operand, parts.data());
  });
  if (workspace_bytes > 0) {
    operands_.workspace = std::bit_cast<void*>(slab_ + workspace_offset);
    operands_.workspace_bytes = workspace_bytes;
  }
}

void DeviceTensors::download(Tensors& to) const {
  size_t index = 0;
  for_each_buffer(to,
                  [&](const OperandRow&, size_t, Buffer& buffer) { gpu_.download(buffer.whole(), places_[index++]); });
}

DeviceTensors::~DeviceTensors() { gpu_.release(slab_); }

}  // namespace attune::lab
