#include "lab/measure/device_tensors.hpp"

#include <bit>

#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr size_t alignment = 512;  // what the common allocators give
constexpr size_t gap_steps = 128;  // gaps of up to 64 KiB: enough to move a tensor over the sets of any cache
constexpr size_t workspace_alignment = 512;

size_t aligned(size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Every buffer of the host tensors with the pointer of attune_forward_args that belongs to it.
template <typename Host, typename Visit>
void for_each(Host& host, attune_forward_args& args, Visit&& visit) {
  const auto point = [&](auto& buffer, auto*& pointer) {
    using Element = std::remove_reference_t<decltype(*pointer)>;
    if (buffer.allocated()) visit(buffer, [&pointer](DevicePointer at) { pointer = std::bit_cast<Element*>(at); });
  };
  const auto point_void = [&](auto& buffer, auto*& pointer) {
    if (buffer.allocated()) visit(buffer, [&pointer](DevicePointer at) { pointer = std::bit_cast<void*>(at); });
  };
  point_void(host.q, args.q);
  point_void(host.k, args.k);
  point_void(host.v, args.v);
  point_void(host.o, args.o);
  point_void(host.bias, args.bias);
  point(host.lse, args.lse);
  point(host.sink, args.sink);
  point(host.mask, args.mask);
  point(host.cu_seqlens_q, args.cu_seqlens_q);
  point(host.cu_seqlens_k, args.cu_seqlens_k);
  point(host.used_q, args.used_q);
  point(host.used_k, args.used_k);
}

}  // namespace

size_t tensor_bytes(const Tensors& host) {
  attune_forward_args unused{};
  size_t bytes = 0;
  for_each(host, unused, [&](const Buffer& buffer, auto&&) { bytes += buffer.data_bytes(); });
  return bytes;
}

DeviceTensors::DeviceTensors(Gpu& gpu, const Tensors& host, uint64_t workspace_bytes, uint64_t placement)
    : gpu_(gpu), bytes_(tensor_bytes(host)) {
  stats::Random random(placement);
  args_.struct_size = sizeof args_;
  struct Place {
    const Buffer* buffer;
    size_t offset;
  };
  std::vector<Place> places;
  size_t size = 0;
  const auto place = [&](size_t bytes) {
    const size_t offset = size + random.below(gap_steps) * alignment;
    size = offset + aligned(bytes);
    return offset;
  };
  for_each(host, args_,
           [&](const Buffer& buffer, auto&&) { places.push_back({&buffer, place(buffer.whole().size())}); });
  const size_t workspace_offset = place(workspace_bytes + workspace_alignment);
  slab_ = gpu_.allocate(size);
  size_t index = 0;
  for_each(host, args_, [&](const Buffer& buffer, auto&& set_pointer) {
    const DevicePointer begin = slab_ + places[index++].offset;
    gpu_.upload(begin, buffer.whole());
    places_.push_back(begin);
    set_pointer(begin + buffer.offset_bytes());
  });
  if (workspace_bytes > 0) {
    args_.workspace = std::bit_cast<void*>(slab_ + workspace_offset);
    args_.workspace_bytes = workspace_bytes;
  }
}

void DeviceTensors::download(Tensors& to) const {
  attune_forward_args unused{};
  size_t index = 0;
  for_each(to, unused, [&](auto& buffer, auto&&) { gpu_.download(buffer.whole(), places_[index++]); });
}

DeviceTensors::~DeviceTensors() { gpu_.release(slab_); }

}  // namespace attune::lab
