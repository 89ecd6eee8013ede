// The keys of one sequence and KV head as a level packs them, in parts.
#pragma once

#include <cstdint>

#include "core/visibility.hpp"
#include "cpu/level/level.hpp"

namespace attune::cpu {

class PackedKeys {
 public:
  PackedKeys(const Call& call, const Level& level, int64_t batch, int64_t head_kv);

  size_t bytes() const { return static_cast<size_t>(steps_) * step_bytes_; }

  // Parts may be packed in any order and at once.
  uint32_t parts() const;
  void pack(int64_t part, char* data) const;

  // Lets a block fetch share `index` of `count` of the keys before they are packed.
  void share(int64_t index, int64_t count, Block& block) const;

 private:
  const Call& call_;
  const Level& level_;
  Block block_;
  size_t step_bytes_;
  int64_t steps_;
};

}  // namespace attune::cpu
