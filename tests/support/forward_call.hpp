// Memory for one call of attune_forward, allocated to the byte, so that AddressSanitizer sees any access outside a
// tensor. Whatever a call need not read (padding between rows, rows not in use) stays poisoned: 0xff bytes, a NaN in
// every dtype.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "attune/attune.h"
#include "core/convert.hpp"

namespace attune::test {

inline constexpr uint8_t poison = 0xff;

// The memory that a tensor of up to four strided dimensions reaches, with a contiguous last one.
class TensorMemory {
 public:
  struct Step {
    int64_t extent, stride;
  };

  TensorMemory() = default;
  TensorMemory(std::array<Step, 4> steps, int64_t dim, int64_t element_bytes)
      : steps_(steps), dim_(dim), element_bytes_(element_bytes) {
    int64_t high = dim;
    for (const auto& [extent, stride] : steps) {
      if (extent == 0) return;
      (stride < 0 ? low_ : high) += stride * (extent - 1);
    }
    bytes_ = (high - low_) * element_bytes;
    memory_ = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes_));
    std::memset(memory_.get(), poison, static_cast<size_t>(bytes_));
  }

  // Element (0, 0, 0, 0); NULL for a tensor without elements.
  void* data() const { return memory_ == nullptr ? nullptr : memory_.get() - low_ * element_bytes_; }
  int64_t bytes() const { return bytes_; }

  // visit(indices of the four dimensions, offset of the first element of the last one)
  template <typename Visit>
  void for_each(Visit&& visit) const {
    if (memory_ == nullptr) return;
    std::array<int64_t, 4> at{};
    for (at[0] = 0; at[0] < steps_[0].extent; ++at[0])
      for (at[1] = 0; at[1] < steps_[1].extent; ++at[1])
        for (at[2] = 0; at[2] < steps_[2].extent; ++at[2])
          for (at[3] = 0; at[3] < steps_[3].extent; ++at[3]) {
            int64_t offset = 0;
            for (size_t i = 0; i < 4; ++i) offset += at[i] * steps_[i].stride;
            visit(at, offset);
          }
  }

  int64_t dim() const { return dim_; }

  // Whether every byte that is no element still holds the poison.
  bool padding_is_untouched() const {
    std::vector<bool> element(static_cast<size_t>(bytes_), false);
    for_each([&](const auto&, int64_t offset) {
      const auto begin = element.begin() + (offset - low_) * element_bytes_;
      std::fill(begin, begin + dim_ * element_bytes_, true);
    });
    for (size_t i = 0; i < element.size(); ++i)
      if (!element[i] && memory_[i] != poison) return false;
    return true;
  }

  bool all_untouched() const {
    return std::all_of(memory_.get(), memory_.get() + bytes_, [](uint8_t byte) { return byte == poison; });
  }

  std::vector<uint8_t> copy() const { return {memory_.get(), memory_.get() + bytes_}; }

 private:
  std::array<Step, 4> steps_{};
  int64_t dim_ = 1, element_bytes_ = 1;
  int64_t low_ = 0;  // the lowest offset, in elements
  int64_t bytes_ = 0;
  std::unique_ptr<uint8_t[]> memory_;
};

// A small generator that is the same everywhere, unlike the distributions of <random>.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 32);
  }
  int64_t in(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  float real() { return static_cast<float>(static_cast<int32_t>(next())) * 0x1p-30f; }  // -2..2
  bool one_in(int64_t n) { return in(1, n) == 1; }

 private:
  uint64_t state_;
};

// A call for a valid descriptor, with tensors of its own.
class ForwardCall {
 public:
  explicit ForwardCall(const attune_forward_desc& d) : desc(d) {
    const bool packed = has(ATTUNE_PACKED);
    const int64_t batch = packed ? 1 : d.batch, rows_q = packed ? d.total_q : d.seq_q,
                  rows_k = packed ? d.total_k : d.seq_k;
    const auto tensor = [&](const attune_strides& s, int64_t rows, int64_t heads, int64_t dim, int64_t bytes) {
      return TensorMemory({{{batch, packed ? 0 : s.batch}, {rows, s.row}, {heads, s.head}, {1, 0}}}, dim, bytes);
    };
    const auto scores = [&](const attune_score_strides& s, int64_t bytes) {
      return TensorMemory({{{d.batch, s.batch}, {d.heads_q, s.head}, {max_q(), s.query}, {max_k(), s.key}}}, 1, bytes);
    };
    const int64_t bytes = bytes_of(static_cast<Dtype>(d.dtype));
    q = tensor(d.q, rows_q, d.heads_q, d.dim_qk, bytes);
    k = tensor(d.k, rows_k, d.heads_kv, d.dim_qk, bytes);
    v = tensor(d.v, rows_k, d.heads_kv, d.dim_v, bytes);
    o = tensor(d.o, rows_q, d.heads_q, d.dim_v, bytes);
    if (has(ATTUNE_LSE)) lse = tensor(d.lse, rows_q, d.heads_q, 1, 4);
    if (has(ATTUNE_BIAS)) bias = scores(d.bias, bytes_of(static_cast<Dtype>(d.bias_dtype)));
    if (has(ATTUNE_MASK)) mask = scores(d.mask, 1);
    if (has(ATTUNE_SINK)) sink.resize(static_cast<size_t>(d.heads_q));
    if (has(ATTUNE_USED_Q)) used_q.resize(static_cast<size_t>(d.batch));
    if (has(ATTUNE_USED_K)) used_k.resize(static_cast<size_t>(d.batch));
    if (packed) {
      cu_seqlens_q.resize(static_cast<size_t>(d.batch) + 1);
      cu_seqlens_k.resize(static_cast<size_t>(d.batch) + 1);
    }
  }

  bool has(attune_features bit) const { return (desc.features & bit) != 0; }
  // Of packed sequences seq_q and seq_k are upper bounds, which may be larger than the whole.
  int64_t max_q() const { return has(ATTUNE_PACKED) ? std::min(desc.seq_q, desc.total_q) : desc.seq_q; }
  int64_t max_k() const { return has(ATTUNE_PACKED) ? std::min(desc.seq_k, desc.total_k) : desc.seq_k; }

  // Whether sequences within the bounds of the descriptor can fill the tensors.
  bool can_be_filled() const {
    const auto fill = [&](int64_t total, int64_t longest) {
      return desc.batch > 0 && (total + desc.batch - 1) / desc.batch <= longest;
    };
    return !has(ATTUNE_PACKED) || (fill(desc.total_q, desc.seq_q) && fill(desc.total_k, desc.seq_k));
  }

  // Lengths within the promises of the descriptor, some of them 0, that fill the tensors if any can.
  void fill_lengths(Numbers& numbers) {
    const auto split = [&](std::vector<int32_t>& offsets, int64_t total, int64_t longest) {
      for (size_t b = 1; b < offsets.size(); ++b) {
        const int64_t left = total - offsets[b - 1], most = std::min(longest, left);
        const auto others = static_cast<int64_t>(offsets.size() - 1 - b);
        const int64_t least = others > 0 && left / others < longest ? 0 : left - others * longest;
        offsets[b] = offsets[b - 1] + static_cast<int32_t>(numbers.in(std::clamp<int64_t>(least, 0, most), most));
      }
    };
    split(cu_seqlens_q, desc.total_q, desc.seq_q);
    split(cu_seqlens_k, desc.total_k, desc.seq_k);
    const auto use = [&](std::vector<int32_t>& used, const std::vector<int32_t>& offsets, int64_t longest) {
      for (size_t b = 0; b < used.size(); ++b)
        used[b] = static_cast<int32_t>(numbers.in(0, offsets.empty() ? longest : offsets[b + 1] - offsets[b]));
    };
    use(used_q, cu_seqlens_q, desc.seq_q);
    use(used_k, cu_seqlens_k, desc.seq_k);
  }

  // Values for everything in use; lengths must be there. The rest stays poisoned.
  void fill_values(Numbers& numbers) {
    fill(q, desc.dtype, numbers, cu_seqlens_q, used_q);
    fill(k, desc.dtype, numbers, cu_seqlens_k, used_k);
    fill(v, desc.dtype, numbers, cu_seqlens_k, used_k);
    for (float& logit : sink) logit = numbers.real();
    bias.for_each([&](const auto&, int64_t offset) {
      store_element(bias.data(), static_cast<Dtype>(desc.bias_dtype), offset, numbers.real());
    });
    mask.for_each([&](const auto&, int64_t offset) {
      static_cast<uint8_t*>(mask.data())[offset] = numbers.one_in(3) ? 0 : static_cast<uint8_t>(numbers.in(1, 255));
    });
  }

  attune_forward_args args() const {
    attune_forward_args a{};
    a.struct_size = sizeof a;
    a.q = q.data();
    a.k = k.data();
    a.v = v.data();
    a.o = o.data();
    a.lse = static_cast<float*>(lse.data());
    a.sink = sink.data();
    a.bias = bias.data();
    a.mask = static_cast<const uint8_t*>(mask.data());
    a.cu_seqlens_q = cu_seqlens_q.data();
    a.cu_seqlens_k = cu_seqlens_k.data();
    a.used_q = used_q.data();
    a.used_k = used_k.data();
    return a;
  }

  // Calls attune_forward with the workspace it asks for.
  attune_status run(attune_context* context) {
    uint64_t bytes = 0;
    if (const attune_status status = attune_workspace_bytes(context, &desc, &bytes); status != ATTUNE_OK) return status;
    attune_forward_args a = args();
    std::vector<uint8_t> workspace(bytes + 255, poison);
    a.workspace = workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256;
    a.workspace_bytes = bytes;
    return attune_forward(context, &desc, &a, nullptr);
  }

  bool outputs_untouched() const { return o.all_untouched() && lse.all_untouched(); }

  attune_forward_desc desc;
  TensorMemory q, k, v, o, lse, bias, mask;
  std::vector<float> sink;
  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k, used_q, used_k;

 private:
  static bool in_use(int64_t batch, int64_t row, const std::vector<int32_t>& offsets,
                     const std::vector<int32_t>& used) {
    if (offsets.empty()) return used.empty() || row < used[static_cast<size_t>(batch)];
    for (size_t b = 0; b + 1 < offsets.size(); ++b)
      if (row >= offsets[b] && row < offsets[b + 1] && (used.empty() || row - offsets[b] < used[b])) return true;
    return false;
  }

  static void fill(TensorMemory& tensor, attune_dtype dtype, Numbers& numbers, const std::vector<int32_t>& offsets,
                   const std::vector<int32_t>& used) {
    tensor.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
      if (!in_use(at[0], at[1], offsets, used)) return;
      for (int64_t i = 0; i < tensor.dim(); ++i)
        store_element(tensor.data(), static_cast<Dtype>(dtype), offset + i, numbers.real());
    });
  }
};

}  // namespace attune::test
