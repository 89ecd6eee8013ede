#include "cpu/tasks.hpp"

#include "kernels/attention/visibility.hpp"

namespace attune::cpu {

Tasks::Tasks(const Problem& problem, const Operands& operands, int rows, int heads, Splits splits)
    : problem_(problem), operands_(operands), rows_(rows), heads_(heads), splits_(splits) {
  first_block_.reserve(static_cast<size_t>(problem.batch) + 1);
  first_block_.push_back(0);
  for (int64_t b = 0; b < problem.batch; ++b) {
    const Sequence sequence = sequence_of(problem, operands, b);
    const int64_t stacked = sequence.stored_q * problem.group();
    most_splits_ = std::max(most_splits_, splits.of(sequence.seq_k));
    first_block_.push_back(first_block_.back() + (stacked + rows - 1) / rows);
  }
}

int64_t Tasks::count_of(int64_t batch) const {
  return first_block_[static_cast<size_t>(batch) + 1] - first_block_[static_cast<size_t>(batch)];
}

void Tasks::get(int64_t index, int64_t split, Task& task) const {
  const int64_t tasks_per_block = problem_.heads_kv / heads_;
  const int64_t block = first_block_.back() - 1 - index / tasks_per_block;
  const auto after = std::upper_bound(first_block_.begin(), first_block_.end(), block);
  const int64_t b = after - first_block_.begin() - 1;
  get_of(b, index % tasks_per_block * heads_, *after - 1 - block, split, task);
}

void Tasks::get_of(int64_t b, int64_t head_kv, int64_t index, int64_t split, Task& task) const {
  // The last rows of a causal problem have the most work: they come first.
  const int64_t block = count_of(b) - 1 - index;
  const Sequence sequence = sequence_of(problem_, operands_, b);
  const int64_t group = problem_.group();

  task.number = (first_block_[static_cast<size_t>(b)] + block) * (problem_.heads_kv / heads_) + head_kv / heads_;
  task.splits = splits_.of(sequence.seq_k);
  task.block = {};
  task.block.batch = b;
  task.block.head_kv = head_kv;
  task.block.heads = heads_;
  task.block.first_row_q = sequence.first_row_q;
  task.block.first_row_k = sequence.first_row_k;
  task.block.seq_q = sequence.seq_q;
  task.block.seq_k = sequence.seq_k;
  task.block.first = block * rows_;
  task.block.count = static_cast<int>(std::min<int64_t>(rows_, sequence.stored_q * group - task.block.first));
  task.block.visible = task.visible;

  const int64_t per_split = (sequence.seq_k + task.splits - 1) / task.splits;
  const int64_t step = (per_split + key_alignment - 1) / key_alignment * key_alignment;
  const int64_t begin = std::min(split * step, sequence.seq_k);
  const int64_t end = std::min(begin + step, sequence.seq_k);
  const auto band = device::band_of<int64_t>(visibility_of(problem_), sequence.seq_q, sequence.seq_k);
  KeyRange range;
  int64_t row = task.block.first / group;
  int64_t same = group - task.block.first % group;  // stacked rows that are left of it
  for (int i = 0; i < task.block.count; ++i, --same) {
    if (same == 0) {
      ++row;
      same = group;
    }
    // A row that is not in use takes the range of the one before it, so that it needs no masking.
    if ((i == 0 || same == group) && row < sequence.seq_q) {
      range = {std::max(band.begin(row), begin), std::min(band.end(row), end)};
    }
    task.visible[i] = range;
  }
}

}  // namespace attune::cpu
