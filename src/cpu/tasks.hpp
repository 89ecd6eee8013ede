// How a problem is cut into tasks: blocks of stacked rows, each with the keys its rows see. How keys are split changes
// the bits of results, and so it depends on shapes and lengths alone. How rows are cut changes no result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/problem.hpp"
#include "core/visibility.hpp"
#include "cpu/level/level.hpp"

namespace attune::cpu {

// How many ways the keys of a sequence are split.
struct Splits {
  int64_t most = 1;
  int64_t keys = 0;  // so many in each, more or less, up to `most` ways; 0: `most` ways, whatever the length

  int64_t of(int64_t seq_k) const {
    return keys == 0 ? most : std::clamp<int64_t>(seq_k / keys + (seq_k % keys * 2 >= keys ? 1 : 0), 1, most);
  }
};

// Lists the blocks of `rows` stacked rows of every sequence and KV head, or of `heads` neighbouring KV heads, which
// must divide their number.
class Tasks {
 public:
  Tasks(const Problem& problem, const Operands& operands, int rows, int heads, Splits splits = {});

  int64_t count() const { return first_block_.back() * (problem_.heads_kv / heads_); }

  // Of the sequence with most splits.
  int64_t most_splits() const { return most_splits_; }

  // One block, as a level wants it. Only keys of split `split` count as visible, which is one of `splits`.
  struct Task {
    int64_t number = 0;  // of count(), the same for all splits
    int64_t splits = 1;
    Block block;
    KeyRange visible[max_task_rows];
  };
  void get(int64_t index, int64_t split, Task& task) const;

  // The same of one sequence and KV head.
  int64_t count_of(int64_t batch) const;
  void get_of(int64_t batch, int64_t head_kv, int64_t index, int64_t split, Task& task) const;

 private:
  const Problem& problem_;
  const Operands& operands_;
  int rows_, heads_;
  Splits splits_;
  int64_t most_splits_ = 1;
  std::vector<int64_t> first_block_;  // per sequence; the last is the total
};

}  // namespace attune::cpu
