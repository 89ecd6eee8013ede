// How a problem is cut into tasks: blocks of stacked rows, each with the keys its rows see. How keys are cut
// depends on the problem and the lengths alone; how rows are cut changes no result.
#pragma once

#include <cstdint>
#include <vector>

#include "core/problem.hpp"
#include "core/visibility.hpp"
#include "cpu/level/level.hpp"

namespace attune::cpu {

// Lists the blocks of `rows` stacked rows of every sequence and KV head, or of `heads` neighbouring KV heads, which
// must divide their number.
class Tasks {
 public:
  Tasks(const Problem& problem, const Operands& operands, int rows, int heads);

  int64_t count() const { return first_block_.back() * (problem_.heads_kv / heads_); }

  // One block, as a level wants it. Only keys of split `split` of `splits` count as visible.
  struct Task {
    int64_t number = 0;  // of count(), the same for all splits
    Block block;
    KeyRange visible[max_task_rows];
  };
  void get(int64_t index, int64_t split, int64_t splits, Task& task) const;

  // The same of one sequence and KV head.
  int64_t count_of(int64_t batch) const;
  void get_of(int64_t batch, int64_t head_kv, int64_t index, int64_t split, int64_t splits, Task& task) const;

 private:
  const Problem& problem_;
  const Operands& operands_;
  int rows_, heads_;
  std::vector<int64_t> first_block_;  // per sequence; the last is the total
};

}  // namespace attune::cpu
