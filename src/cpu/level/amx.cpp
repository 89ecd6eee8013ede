// 512-bit vectors, and the tile unit for products of 16-bit types: AMX-BF16, with AVX-512 as in avx512.cpp and
// AVX512_BF16.
#if defined(__x86_64__)
#define ATTUNE_LEVEL amx
#include "cpu/level/tile_level.inl.hpp"

namespace attune::cpu {
constinit const Level amx_level = amx::tile_level_table("amx");
}  // namespace attune::cpu
#endif
