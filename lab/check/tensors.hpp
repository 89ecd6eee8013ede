// The tensors of one call on the host, laid out to catch what a kernel must not do: every buffer stands between two
// red zones, and every byte that no tensor element owns is poison (all bits set: NaN in each float type).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem.hpp"
#include "core/visibility.hpp"

namespace attune::lab {

// How the strides of a problem are laid out in memory. dense: as the problem says. padded: gaps of 8 elements after
// every dimension, which keeps 16-byte alignment. odd: gaps of 3 elements and a first element off by one, so that only
// the alignment of a single element is left. reversed: dense, but every stride is negative, the one along the keys of
// bias and mask as well.
enum class Storage { dense, padded, odd, reversed };
inline constexpr std::array all_storages{Storage::dense, Storage::padded, Storage::odd, Storage::reversed};
std::string_view name_of(Storage storage);
Storage storage_from(std::string_view name);

// Memory whose first byte is aligned, also after a copy: alignment must not differ between two runs that are compared.
template <typename T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t alignment{64};
  AlignedAllocator() = default;
  template <typename U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), alignment)); }
  void deallocate(T* pointer, size_t) { ::operator delete(pointer, alignment); }
  bool operator==(const AlignedAllocator&) const = default;
};

class Buffer {
 public:
  Buffer() = default;
  // `first_element`: what strides count from; elements before it are reached by negative ones.
  Buffer(int64_t elements, int64_t element_bytes, int64_t shift_elements, int64_t first_element = 0);

  bool allocated() const { return !bytes_.empty(); }
  void* data() { return bytes_.data() + offset_; }
  const void* data() const { return bytes_.data() + offset_; }
  template <typename T>
  T* as() {
    return static_cast<T*>(data());
  }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data());
  }

  // Every element, whichever strides count from.
  std::span<std::byte> elements() { return std::span(bytes_).subspan(begin_, data_bytes_); }
  // The elements together with both red zones: what is copied to a device and back.
  std::span<std::byte> whole() { return bytes_; }
  std::span<const std::byte> whole() const { return bytes_; }
  size_t offset_bytes() const { return offset_; }  // of data() in whole()
  size_t begin_bytes() const { return begin_; }    // of elements() in whole()
  size_t data_bytes() const { return data_bytes_; }

  void poison();

 private:
  std::vector<std::byte, AlignedAllocator<std::byte>> bytes_;
  size_t begin_ = 0, offset_ = 0;
  size_t data_bytes_ = 0;
};

// Copying a Tensors copies the buffers: the copy is a second, independent call.
struct Tensors {
  Problem problem;  // with the strides of these buffers
  Buffer q, k, v, o, lse, sink, bias, mask, cu_seqlens_q, cu_seqlens_k, used_q, used_k;

  attune_forward_args args();
  attune_forward_args input_args() const;  // without o and lse
  Sequence sequence(int64_t batch) const;
};

// Buffers for the problem, all poison; bytes of the mask read as "visible".
Tensors allocate(const Problem& problem, Storage storage);

// The problem with the strides that `storage` gives it.
Problem with_storage(const Problem& problem, Storage storage);

// Offset of element 0 of a row of q, k, v or o (or of the one element of lse), in elements.
int64_t row_offset(const Problem& problem, const attune_strides& strides, int64_t batch, int64_t first_row, int64_t row,
                   int64_t head);

// "" if every byte around and between the elements of o and lse still is what allocate() put there, else a sentence.
// Elements of rows that belong to no sequence count as "between".
std::string stray_writes(const Tensors& tensors);

}  // namespace attune::lab
