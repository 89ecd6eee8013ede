#include "lab/measure/probes/amx.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>

#include "lab/stats/random.hpp"

namespace attune::lab {
namespace {

constexpr int tile_rows = 16, row_bytes = 64;
constexpr int accumulators = 4;
constexpr double operations_per_product = 2.0 * 16 * 16 * 32;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

struct alignas(64) Tile {
  uint16_t elements[tile_rows * row_bytes / 2];
};

Tile random_tile(uint64_t seed) {
  stats::Random random(seed);
  Tile tile{};
  // Sign and fraction at random, between 1/2 and 2.
  for (uint16_t& element : tile.elements) element = static_cast<uint16_t>((random.bits() & 0x80ff) | 0x3f00);
  return tile;
}

// Between products: where the core's other thread is busy, products that follow each other at once take 1.7 times as
// long, and a ceiling must not be lower than what kernels can reach.
inline void keep_apart() { asm volatile(".rept 8\n nop\n.endr"); }

template <bool apart>
double multiply(int64_t rounds) {
  TileConfig config;
  for (int i = 0; i < accumulators + 4; ++i) {
    config.bytes_per_row[i] = row_bytes;
    config.rows[i] = tile_rows;
  }
  // Made once: drawing the numbers takes as long as a good part of the products.
  static const Tile a0 = random_tile(1), a1 = random_tile(2), b0 = random_tile(3), b1 = random_tile(4);
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, a0.elements, row_bytes);
  _tile_loadd(5, a1.elements, row_bytes);
  _tile_loadd(6, b0.elements, row_bytes);
  _tile_loadd(7, b1.elements, row_bytes);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (apart) keep_apart();
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (apart) keep_apart();
    _tile_dpbf16ps(2, 5, 6);
    if constexpr (apart) keep_apart();
    _tile_dpbf16ps(3, 5, 7);
    if constexpr (apart) keep_apart();
  }
  _tile_release();
  return static_cast<double>(rounds) * accumulators * operations_per_product;
}

}  // namespace

double multiply_amx_tiles(int64_t rounds) { return multiply<true>(rounds); }
double multiply_amx_tiles_at_once(int64_t rounds) { return multiply<false>(rounds); }

}  // namespace attune::lab
#else
namespace attune::lab {

double multiply_amx_tiles(int64_t) { return 0; }
double multiply_amx_tiles_at_once(int64_t) { return 0; }

}  // namespace attune::lab
#endif
