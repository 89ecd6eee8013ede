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

#include "core/operation.hpp"
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
class Tensors {
 public:
  Problem problem;  // with the strides of these buffers

  Tensors();

  // Not allocated where the problem does not have the operand. Most have one part.
  Buffer& operator[](Operand operand) { return parts(operand).front(); }
  const Buffer& operator[](Operand operand) const { return parts(operand).front(); }
  std::vector<Buffer>& parts(Operand operand) { return buffers_[static_cast<size_t>(operand)]; }
  const std::vector<Buffer>& parts(Operand operand) const { return buffers_[static_cast<size_t>(operand)]; }

  // The pointers of the call. Those of outputs are left out of input_operands(). Where an operand has parts, they lie
  // in this object: they hold until the next call of either function.
  Operands operands();
  Operands input_operands() const;
  Sequence sequence(int64_t batch) const;  // may be called by many threads

 private:
  Operands pointers(bool with_outputs) const;

  std::array<std::vector<Buffer>, operand_count> buffers_;
  mutable std::array<std::vector<const void*>, operand_count> part_pointers_;
};

// body(row, part, buffer) for every allocated buffer, in the order of the table of operands.
template <typename AnyTensors, typename Body>
void for_each_buffer(AnyTensors& tensors, Body&& body) {
  for (const OperandRow& row : operand_rows()) {
    size_t part = 0;
    for (auto& buffer : tensors.parts(row.operand)) {
      if (buffer.allocated()) body(row, part, buffer);
      ++part;
    }
  }
}

// Buffers for the problem, all poison; bytes of the mask read as "visible".
Tensors allocate(const Problem& problem, Storage storage);

// The problem of a call on the CPU, where offsets must end with the last row: rows that belong to no sequence, which a
// GPU passes over, are not in its tensors.
Problem without_spare_rows(const Tensors& tensors);

void poison_outputs(Tensors& tensors);

// The problem with the strides that `storage` gives it.
Problem with_storage(const Problem& problem, Storage storage);

// Offset of element 0 of a row of q, k, v or o (or of the one element of lse), in elements.
int64_t row_offset(const Problem& problem, const attune_strides& strides, int64_t batch, int64_t first_row, int64_t row,
                   int64_t head);

// "" if every byte around and between the elements of the outputs still is what allocate() put there, else a sentence.
// Elements of rows that belong to no sequence count as "between".
std::string stray_writes(const Tensors& tensors);

}  // namespace attune::lab
