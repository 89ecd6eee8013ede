// What a task in pairs of bf16 fetches while it computes, a few lines a step: a share of the keys that this thread
// packs next. All at once they would wait for each other.
#pragma once

#include "cpu/level/rows.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

class KeysAhead {
 public:
  // For a task of so many steps.
  KeysAhead(const Problem& p, const Block& block, int64_t steps)
      : count_(block.next_count),
        steps_(steps),
        k_(rows_of(block, block.next_k, p.k, p.dim_qk, p.dtype)),
        v_(rows_of(block, block.next_v, p.v, p.dim_v, p.dtype)) {}

  void step() {
    due_ += count_;
    for (; due_ >= steps_; due_ -= steps_) {
      k_.fetch();
      v_.fetch();
    }
  }

 private:
  static RowsAhead rows_of(const Block& block, const char* first, const attune_strides& strides, int64_t dim,
                           Dtype dtype) {
    const int64_t size = dtype == Dtype::f32 ? 4 : 2;
    return {first, strides.row * size, 0, dim * size, block.next_count, 1};
  }

  int64_t count_, steps_, due_ = 0;
  RowsAhead k_, v_;
};

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
