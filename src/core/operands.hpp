// The tensors of a call as data: one table with a row for each operand that any operation has, and the pointers of a
// call by operand. Validation, strides, the text form, and in the lab allocation, upload, poison and digests iterate
// the table. It does not drive the mathematics of a kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/problem.hpp"

namespace attune {

enum class Operand : uint8_t {
  q,
  k,
  v,
  o,
  lse,
  sink,
  bias,
  mask,
  cu_seqlens_q,
  cu_seqlens_k,
  used_q,
  used_k,
  part_o,
  part_lse,
  dout,
  dlse,
  dq,
  dk,
  dv,
  dsink,
  dbias,
};
inline constexpr size_t operand_count = 21;

// What one element is.
enum class Element : uint8_t { of_problem, of_bias, of_parts, f32, byte, i32 };

// How the elements lie.
enum class Form : uint8_t {
  rows,        // batch x rows x heads x dim, by strides; of packed sequences without the batch
  scores,      // batch x heads_q x seq_q x seq_k, by strides; 0 broadcasts
  heads,       // heads_q, contiguous
  sequences,   // batch, contiguous
  boundaries,  // batch + 1, contiguous
};

struct OperandRow {
  Operand operand;
  std::string_view name;   // as in attune.h
  std::string_view what;   // it must point to, for errors
  bool per_part = false;   // one tensor for each part of a merge: the pointer leads to an array of pointers
  attune_features on = 0;  // the feature that asks for it; 0: always there
  std::string_view feature_name = {};
  std::string_view word = {};  // that switches the feature on in the text form, or off where `word_is_off`
  bool word_is_off = false;
  Element element = Element::of_problem;
  Form form = Form::rows;
  // Form::rows: the lengths when dense and when packed; nullptr for a dim of 1.
  int64_t Problem::* seq = nullptr;
  int64_t Problem::* total = nullptr;
  int64_t Problem::* heads = nullptr;
  int64_t Problem::* dim = nullptr;
  attune_strides Problem::* strides = nullptr;
  attune_score_strides Problem::* score_strides = nullptr;  // Form::scores
};

const std::array<OperandRow, operand_count>& operand_rows();
inline const OperandRow& row_of(Operand operand) { return operand_rows()[static_cast<size_t>(operand)]; }

// Whether a call of this problem has the operand: its operation takes it, and a feature asks for it where one must.
bool has_operand(const Problem& problem, const OperandRow& row);

// The same, and it is an output.
bool is_written(const Problem& problem, const OperandRow& row);

// Whether it has elements at all: without any, no pointer is needed.
bool has_elements(const Problem& problem, const OperandRow& row);

// No output has elements.
bool nothing_to_write(const Problem& problem);

int64_t element_bytes(const Problem& problem, const OperandRow& row);

// Extents of an operand of Form::rows. Packed sequences are one batch.
struct RowExtents {
  int64_t batch, rows, heads, dim;
};
RowExtents row_extents(const Problem& problem, const OperandRow& row);

// Elements of an operand that is contiguous by its form.
int64_t contiguous_elements(const Problem& problem, const OperandRow& row);

// The pointers of one call. What an operand's feature does not switch on may be anything.
class Operands {
 public:
  template <typename T = void>
  [[gnu::always_inline]] const T* in(Operand operand) const {
    return static_cast<const T*>(pointers_[static_cast<size_t>(operand)]);
  }
  template <typename T = void>
  [[gnu::always_inline]] T* out(Operand operand) const {
    return static_cast<T*>(const_cast<void*>(pointers_[static_cast<size_t>(operand)]));
  }
  // Of an operand that has one tensor per part.
  template <typename T = void>
  [[gnu::always_inline]] const T* const* parts(Operand operand) const {
    return static_cast<const T* const*>(pointers_[static_cast<size_t>(operand)]);
  }
  void set(Operand operand, const void* pointer) { pointers_[static_cast<size_t>(operand)] = pointer; }

  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;

 private:
  // No std::array: its functions, compiled for one level of the CPU, could be the copy that the linker keeps for all.
  const void* pointers_[operand_count] = {};
};

// Where the structs of the C interface become operands, and operands the structs for whoever calls through it.
Operands operands_of(const attune_forward_args& args);
Operands operands_of(const attune_backward_args& args);
Operands operands_of(const attune_merge_args& args);
attune_forward_args forward_args_of(const Operands& operands);
attune_backward_args backward_args_of(const Operands& operands);
attune_merge_args merge_args_of(const Operands& operands);

// Checks that every pointer the problem needs is there and aligned to its element, and what its operation asks for.
void check_operands(const Problem& problem, const Operands& operands, uint64_t workspace_bytes);

// Checks lengths that the host can read: offsets fill the tensors from the first row to the last, no length is beyond
// the bound of the descriptor, and no sequence uses more than it has. Pointers must be there as far as the problem
// needs them. On a GPU nobody can look, and kernels clamp.
void check_lengths(const Problem& problem, const Operands& operands);

}  // namespace attune
