// What a task of the tile unit fetches while it computes, a few lines a step: the next rows of Q, the rows of O it will
// write soon, and a share of the keys that this thread packs next. Strided rows defeat the processor's own prefetching,
// and all at once they would wait for each other.
#pragma once

#include "cpu/level/rows.inl.hpp"
#include "cpu/level/tile_block.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

class FetchAhead {
 public:
  FetchAhead(const Call& call, const Block& block, int64_t steps)
      : call_(call),
        block_(block),
        steps_(steps),
        k_(rows_of(block.next_k, call.problem->k, call.problem->dim_qk)),
        v_(rows_of(block.next_v, call.problem->v, call.problem->dim_v)) {}

  // Of groups, or NULL: whose Q is read next, whose O is written soon; within so many steps.
  void begin(const Group* q_of, const Group* o_of, int64_t within) {
    q_of_ = q_of;
    o_of_ = o_of;
    row_ = 0;
    rows_a_step_ = (group_rows + within - 1) / within;
  }

  void step() {
    const Problem& p = *call_.problem;
    for (int64_t i = 0; i < rows_a_step_ && row_ < group_rows; ++i, ++row_) {
      if (q_of_ != nullptr && row_ < q_of_->rows.count) fetch<false>(call_.args->q, p.q, p.dim_qk, q_of_->rows.first);
      if (o_of_ != nullptr && row_ < o_of_->rows.count) fetch<true>(call_.args->o, p.o, p.dim_v, o_of_->rows.first);
    }
    due_ += block_.next_count;
    for (; due_ >= steps_; due_ -= steps_) {
      k_.fetch();
      v_.fetch();
    }
  }

 private:
  RowsAhead rows_of(const char* first, const attune_strides& strides, int64_t dim) const {
    const int64_t size = bytes_of_element();
    return {first, strides.row * size, 0, dim * size, block_.next_count, 1};
  }
  int64_t bytes_of_element() const { return call_.problem->dtype == Dtype::f32 ? 4 : 2; }

  template <bool to_write>
  void fetch(const void* data, const attune_strides& strides, int64_t dim, int first) const {
    const StackedRow at = stacked_row(call_, block_, first + row_);
    if (at.row >= block_.seq_q) return;
    const char* const row = element(data, call_.problem->dtype, q_offset(*call_.problem, strides, block_, at));
    for (int64_t i = 0; i < dim * bytes_of_element(); i += 64) __builtin_prefetch(row + i, to_write, 2);
  }

  const Call& call_;
  const Block& block_;
  const Group *q_of_ = nullptr, *o_of_ = nullptr;
  int64_t row_ = 0, rows_a_step_ = 0, due_ = 0, steps_;
  RowsAhead k_, v_;
};

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
