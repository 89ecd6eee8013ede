// 512-bit vectors as in avx512.cpp, and products of bf16 pairs: AVX512_BF16, with AVX512_VBMI.
#if defined(__x86_64__)
#define ATTUNE_LEVEL avx512bf16
#define ATTUNE_PAIRS_IN_VECTORS
#include "cpu/level/tile_forward.inl.hpp"

namespace attune::cpu {
constinit const Level avx512bf16_level = [] {
  Level level = avx512bf16::pair_level_table("avx512bf16");
  level.multiply_pairs = avx512bf16::multiply_pairs_rounds;
  return level;
}();
}  // namespace attune::cpu
#endif
