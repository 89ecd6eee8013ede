// Where the keys of every sequence and KV head lie once a level has packed them, and the packing in parts.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/level/level.hpp"

namespace attune::cpu {

class PackedKeys {
 public:
  PackedKeys(const Call& call, const Level& level);

  size_t bytes() const { return static_cast<size_t>(steps_ * call_.problem->heads_kv) * step_bytes_; }

  // Parts may be packed in any order and at once.
  int64_t parts() const;
  void pack(int64_t part, char* data) const;

  // The first step of the block's sequence and KV head.
  const char* of(const Block& block, const char* data) const;

 private:
  const Call& call_;
  const Level& level_;
  size_t step_bytes_;
  int64_t steps_ = 0;                // of one KV head, over all sequences
  std::vector<int64_t> first_step_;  // per sequence; the last is the total
};

}  // namespace attune::cpu
