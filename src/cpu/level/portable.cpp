// The level that every machine has: 128-bit vectors, no fused multiply-add.
#define ATTUNE_LEVEL portable
#include "cpu/level/level.inl.hpp"

namespace attune::cpu {
constinit const Level portable_level = portable::level_table("portable", false);
}  // namespace attune::cpu
