// The AMX level with emulated tiles: the same source as src/cpu/level/amx.cpp. A translation unit of its own, because
// code compiled for AVX-512 must not be shared with the tests around it.
#if defined(__x86_64__)
#define ATTUNE_LEVEL amx_emulated
#define ATTUNE_EMULATED_TILES
#include "cpu/level/tile_level.inl.hpp"

namespace attune::cpu {
extern const Level amx_emulated_level;
constinit const Level amx_emulated_level = amx_emulated::tile_level_table("amx-emulated");
}  // namespace attune::cpu
#endif
