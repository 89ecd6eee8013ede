// What a task fetches into the L2 cache while it computes, a few lines at a time, between products: all at once they
// would wait for each other.
#pragma once

#include "cpu/level/level.hpp"
#include "cpu/level/memory.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// Fetches rows of some heads one at a time, those of a key or query one after the other.
class RowsAhead {
 public:
  RowsAhead(const char* first, int64_t row_step, int64_t head_step, int64_t bytes, int64_t rows, int64_t heads)
      : at_(first), row_step_(row_step), head_step_(head_step), bytes_(bytes), left_(rows * heads), heads_(heads) {}
  void fetch() {
    if (left_ == 0) return;
    --left_;
    const char* const from = at_ + head_ * head_step_;
    for (int64_t i = 0; i < bytes_; i += 64) __builtin_prefetch(from + i, 0, 2);
    if (++head_ < heads_) return;
    head_ = 0;
    at_ += row_step_;
  }

 private:
  const char* at_;
  int64_t row_step_, head_step_, bytes_, left_, head_ = 0, heads_;
};

// Of a task of the block path: its share of the keys that its thread packs next, the rows of O that it will write, and
// those of Q that its thread most likely reads next.
class TaskAhead {
 public:
  // For a task of so many steps.
  TaskAhead(const Call& call, const Block& block, int64_t steps)
      : steps_(steps),
        keys_(block.next_count),
        rows_(block.count),
        late_steps_(smaller_of(steps, most_late_steps)),
        k_(keys_of(*call.problem, block.next_k, block.next_count, call.problem->k, call.problem->dim_qk)),
        v_(keys_of(*call.problem, block.next_v, block.next_count, call.problem->v, call.problem->dim_v)),
        o_(rows_of(call, block, block.partial == nullptr ? block.first : -1, call.operands->out(Operand::o),
                   call.problem->o, call.problem->dim_v)),
        q_(rows_of(call, block, block.first - block.count, call.operands->in(Operand::q), call.problem->q,
                   call.problem->dim_qk)) {}

  void step() {
    --steps_left_;
    for (keys_due_ += keys_; keys_due_ >= steps_; keys_due_ -= steps_) {
      k_.fetch();
      v_.fetch();
    }
    if (steps_left_ >= late_steps_) return;
    for (rows_due_ += rows_; rows_due_ >= late_steps_; rows_due_ -= late_steps_) {
      o_.fetch();
      q_.fetch();
    }
  }

 private:
  // Rows come in the last steps, or they would be gone again.
  static constexpr int64_t most_late_steps = 128;

  static RowsAhead keys_of(const Problem& p, const char* first, int64_t count, const attune_strides& strides,
                           int64_t dim) {
    const int64_t size = p.dtype == Dtype::f32 ? 4 : 2;
    return {first, strides.row * size, 0, dim * size, count, 1};
  }

  // As many stacked rows from `first` on as the block has; none if there is no such row.
  static RowsAhead rows_of(const Call& call, const Block& block, int64_t first, const void* data,
                           const attune_strides& strides, int64_t dim) {
    const Problem& p = *call.problem;
    if (first < 0) return {nullptr, 0, 0, 0, 0, 1};
    const int64_t size = p.dtype == Dtype::f32 ? 4 : 2;
    const StackedRow at{first / call.group, block.head_kv * call.group};
    return {element(data, p.dtype, q_offset(p, strides, block, at)),
            strides.row * size,
            strides.head * size,
            dim * size,
            (block.count + call.group - 1) / call.group,
            call.group};
  }

  int64_t steps_, steps_left_ = steps_, keys_, keys_due_ = 0, rows_, rows_due_ = 0, late_steps_;
  RowsAhead k_, v_, o_, q_;
};

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
