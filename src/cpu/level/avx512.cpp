// 512-bit vectors: AVX-512 F, BW, DQ, VL.
#if defined(__x86_64__)
#define ATTUNE_LEVEL avx512
#include "cpu/level/level.inl.hpp"

namespace attune::cpu {
constinit const Level avx512_level = avx512::level_table("avx512", true);
}  // namespace attune::cpu
#endif
