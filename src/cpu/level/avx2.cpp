// 256-bit vectors with fused multiply-add and fp16 conversion: AVX2, FMA, F16C.
#if defined(__x86_64__)
#define ATTUNE_LEVEL avx2
#include "cpu/level/level.inl.hpp"

namespace attune::cpu {
constinit const Level avx2_level = avx2::level_table("avx2", true);
}  // namespace attune::cpu
#endif
