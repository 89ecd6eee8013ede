#include "cpu/packed_keys.hpp"

#include <algorithm>

namespace attune::cpu {
namespace {

constexpr int64_t steps_per_part = 4;

}  // namespace

PackedKeys::PackedKeys(const Call& call, const Level& level, int64_t batch, int64_t head_kv)
    : call_(call), level_(level), step_bytes_(level.packed_bytes(*call.problem)) {
  const Sequence sequence = sequence_of(*call.problem, *call.operands, batch);
  block_.batch = batch;
  block_.head_kv = head_kv;
  block_.first_row_k = sequence.first_row_k;
  block_.seq_k = sequence.seq_k;
  steps_ = (sequence.seq_k + packed_keys - 1) / packed_keys;
}

uint32_t PackedKeys::parts() const { return static_cast<uint32_t>((steps_ + steps_per_part - 1) / steps_per_part); }

void PackedKeys::pack(int64_t part, char* data) const {
  const int64_t end = std::min((part + 1) * steps_per_part, steps_);
  for (int64_t step = part * steps_per_part; step < end; ++step) {
    const int64_t from = step * packed_keys;
    level_.pack(call_, block_, from, std::min(packed_keys, block_.seq_k - from),
                data + static_cast<size_t>(step) * step_bytes_);
  }
}

void PackedKeys::share(int64_t index, int64_t count, Block& block) const {
  const Problem& p = *call_.problem;
  const int64_t from = block_.seq_k * index / count, to = block_.seq_k * (index + 1) / count;
  if (from == to) return;  // without keys there may be no tensor either
  const auto row = [&](const void* data, const attune_strides& strides) {
    const int64_t batch = p.packed() ? 0 : block_.batch * strides.batch;
    const int64_t element = batch + (block_.first_row_k + from) * strides.row + block_.head_kv * strides.head;
    return static_cast<const char*>(data) + element * bytes_of(p.dtype);
  };
  block.next_k = row(call_.operands->in(Operand::k), p.k);
  block.next_v = row(call_.operands->in(Operand::v), p.v);
  block.next_count = to - from;
}

}  // namespace attune::cpu
