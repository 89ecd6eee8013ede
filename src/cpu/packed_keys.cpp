#include "cpu/packed_keys.hpp"

#include <algorithm>

#include "core/visibility.hpp"

namespace attune::cpu {
namespace {

constexpr int64_t steps_per_part = 16;

}  // namespace

PackedKeys::PackedKeys(const Call& call, const Level& level)
    : call_(call), level_(level), step_bytes_(level.packed_bytes(*call.problem)) {
  first_step_.reserve(static_cast<size_t>(call.problem->batch) + 1);
  for (int64_t b = 0; b < call.problem->batch; ++b) {
    first_step_.push_back(steps_);
    steps_ += (sequence_of(*call.problem, *call.args, b).seq_k + packed_keys - 1) / packed_keys;
  }
  first_step_.push_back(steps_);
}

int64_t PackedKeys::parts() const { return (steps_ + steps_per_part - 1) / steps_per_part * call_.problem->heads_kv; }

void PackedKeys::pack(int64_t part, char* data) const {
  Block block;
  block.head_kv = part % call_.problem->heads_kv;
  const int64_t begin = part / call_.problem->heads_kv * steps_per_part;
  const int64_t end = std::min(begin + steps_per_part, steps_);
  for (int64_t step = begin; step < end; ++step) {
    const auto after = std::upper_bound(first_step_.begin(), first_step_.end(), step);
    block.batch = after - first_step_.begin() - 1;
    const Sequence sequence = sequence_of(*call_.problem, *call_.args, block.batch);
    block.first_row_k = sequence.first_row_k;
    block.seq_k = sequence.seq_k;
    const int64_t from = (step - first_step_[static_cast<size_t>(block.batch)]) * packed_keys;
    level_.pack(call_, block, from, std::min(packed_keys, sequence.seq_k - from),
                data + static_cast<size_t>(block.head_kv * steps_ + step) * step_bytes_);
  }
}

const char* PackedKeys::of(const Block& block, const char* data) const {
  const int64_t step = block.head_kv * steps_ + first_step_[static_cast<size_t>(block.batch)];
  return data + static_cast<size_t>(step) * step_bytes_;
}

}  // namespace attune::cpu
