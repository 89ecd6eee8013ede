// Problems as values: names, comparison, contiguous strides, and the way back to a descriptor.
#include "core/problem.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.hpp"
#include "core/operands.hpp"

namespace attune {
namespace {

int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  // An extent of 0 or 1 still leaves room for one element, so that the strides of an empty tensor are not 0, which
  // would say "broadcast".
  if (__builtin_mul_overflow(std::max<int64_t>(a, 1), std::max<int64_t>(b, 1), &result))
    fail(ATTUNE_INVALID_ARGUMENT, "the problem needs strides of more than 64 bits ({} * {})", a, b);
  return result;
}

attune_strides contiguous(Layout layout, bool packed, const RowExtents& extents) {
  const auto [batch, rows, heads, dim] = extents;
  attune_strides strides{};
  if (layout == Layout::bshd) {
    strides.head = dim;
    strides.row = product(heads, dim);
  } else {
    strides.row = dim;
    strides.head = product(rows, dim);
  }
  const int64_t all = product(product(rows, heads), dim);
  strides.batch = packed ? 0 : all;
  return strides;
}

attune_score_strides contiguous(const Problem& problem, ScoreShape shape) {
  attune_score_strides strides{};
  int64_t next = 1;
  const auto take = [&next](bool present, int64_t extent, int64_t& stride) {
    stride = present ? next : 0;
    if (present) next = product(next, extent);
  };
  take(shape.key, problem.seq_k, strides.key);
  take(shape.query, problem.seq_q, strides.query);
  take(shape.head, problem.heads_q, strides.head);
  take(shape.batch, problem.batch, strides.batch);
  return strides;
}

}  // namespace

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return "f16";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f32:
      return "f32";
  }
  return "unknown dtype";
}

std::string_view name_of(Causal causal) {
  switch (causal) {
    case Causal::none:
      return "full";
    case Causal::top_left:
      return "causal-tl";
    case Causal::bottom_right:
      return "causal-br";
  }
  return "unknown causal";
}

float default_scale(int64_t dim_qk) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim_qk))); }

bool Problem::operator==(const Problem& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }

uint64_t Problem::hash() const { return XXH3_64bits(this, sizeof *this); }

void set_contiguous(Problem& problem, Layout layout, ScoreShape bias, ScoreShape mask) {
  for (const OperandRow& row : operand_rows()) {
    const bool present = has_operand(problem, row);
    if (row.strides != nullptr) {
      // What has no dim is (batch, head, row) in either layout.
      const Layout of_row = row.dim == nullptr ? Layout::bhsd : layout;
      problem.*row.strides =
          present ? contiguous(of_row, problem.packed(), row_extents(problem, row)) : attune_strides{};
    }
    if (row.score_strides != nullptr) {
      const ScoreShape shape = row.operand == Operand::mask ? mask : bias;  // dbias has that of the bias
      problem.*row.score_strides = present ? contiguous(problem, shape) : attune_score_strides{};
    }
  }
}

attune_forward_desc desc_from(const Problem& problem) {
  attune_forward_desc desc{};
  desc.struct_size = sizeof desc;
  desc.features = problem.features & ~(ATTUNE_SCALE | ATTUNE_WINDOW | ATTUNE_SOFTCAP);
  desc.device_kind = static_cast<attune_device_kind>(problem.device_kind);
  desc.device_index = problem.device_index;
  desc.dtype = static_cast<attune_dtype>(problem.dtype);
  desc.bias_dtype = static_cast<attune_dtype>(problem.bias_dtype);
  desc.causal = static_cast<attune_causal>(problem.causal);
  desc.batch = problem.batch;
  desc.heads_q = problem.heads_q;
  desc.heads_kv = problem.heads_kv;
  desc.seq_q = problem.seq_q;
  desc.seq_k = problem.seq_k;
  desc.dim_qk = problem.dim_qk;
  desc.dim_v = problem.dim_v;
  desc.total_q = problem.total_q;
  desc.total_k = problem.total_k;
  desc.q = problem.q;
  desc.k = problem.k;
  desc.v = problem.v;
  desc.o = problem.o;
  desc.lse = problem.lse;
  desc.bias = problem.bias;
  desc.mask = problem.mask;
  // By value and not by bit, so that a Problem filled in by hand needs no bits for them.
  if (problem.window_left != unbounded || problem.window_right != unbounded) desc.features |= ATTUNE_WINDOW;
  desc.window_left = problem.window_left;
  desc.window_right = problem.window_right;
  if (problem.scale != default_scale(problem.dim_qk)) desc.features |= ATTUNE_SCALE;
  desc.scale = problem.scale;
  if (problem.softcap != 0) desc.features |= ATTUNE_SOFTCAP;
  desc.softcap = problem.softcap;
  return desc;
}

attune_merge_desc merge_desc_from(const Problem& problem) {
  attune_merge_desc desc{};
  desc.struct_size = sizeof desc;
  desc.device_kind = static_cast<attune_device_kind>(problem.device_kind);
  desc.device_index = problem.device_index;
  desc.part_dtype = static_cast<attune_dtype>(problem.part_dtype);
  desc.dtype = static_cast<attune_dtype>(problem.dtype);
  desc.parts = problem.parts;
  desc.batch = problem.batch;
  desc.heads = problem.heads_q;
  desc.rows = problem.seq_q;
  desc.dim = problem.dim_v;
  desc.part_o = problem.part_o;
  desc.part_lse = problem.part_lse;
  desc.o = problem.o;
  desc.lse = problem.lse;
  return desc;
}

}  // namespace attune
