// The tile unit of AMX, and nothing else of it: configuration, load, store, zero, product. With ATTUNE_EMULATED_TILES
// the same class computes what the instructions are documented to compute, so that everything above it can be tested on
// machines without AMX.
#pragma once

#include "cpu/level/vector.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// A tile has 16 rows of 64 bytes: 16 floats, or 16 pairs of bf16.
constexpr int tile_side = 16;
constexpr int64_t tile_row_bytes = 64;
constexpr int64_t tile_bytes = tile_side * tile_row_bytes;
constexpr int tile_count = 8;

// The shape of each tile; full unless told otherwise. Read by ldtilecfg. Not on the stack, where a compiler that does
// not see the instruction's read may leave it unwritten.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig tile_config;

#if defined(ATTUNE_EMULATED_TILES)

// Numbers below the smallest normal one are 0 to the tile unit, as operands and as results.
inline Floats flushed(Floats v) {
  const Words sign = bits_as<Words>(v) & 0x80000000u;
  const Words magnitude = bits_as<Words>(v) ^ sign;
  return bits_as<Floats>(magnitude < 0x00800000u ? sign : bits_as<Words>(v));
}

class Tiles {
 public:
  Tiles() = default;
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // Other shapes from now on; what tiles hold is lost.
  void configure(const TileConfig& config) { config_ = &config; }

  template <int t>
  void load(const void* from, int64_t pitch) {
    zero<t>();
    for (int64_t row = 0; row < config_->rows[t]; ++row)
      __builtin_memcpy(&tiles_[t][row], static_cast<const char*>(from) + row * pitch, config_->bytes_per_row[t]);
  }
  template <int t>
  void stream(const void* from, int64_t pitch) {
    load<t>(from, pitch);
  }
  template <int t>
  void store(void* to, int64_t pitch) const {
    for (int64_t row = 0; row < config_->rows[t]; ++row)
      __builtin_memcpy(static_cast<char*>(to) + row * pitch, &tiles_[t][row], config_->bytes_per_row[t]);
  }
  template <int t>
  void zero() {
    for (Words& row : tiles_[t]) row = Words{};
  }
  // tdpbf16ps: the even and the odd elements of the 16 pairs are summed apart, then together, then into the result.
  template <int c, int a, int b>
  void multiply_add() {
    const bool fit = config_->rows[c] == config_->rows[a] && config_->bytes_per_row[c] == config_->bytes_per_row[b] &&
                     config_->bytes_per_row[a] == 4 * config_->rows[b];
    if (!fit) __builtin_trap();  // an illegal instruction
    Floats even_b[tile_side], odd_b[tile_side];
    for (int k = 0; k < tile_side; ++k) {
      even_b[k] = flushed(bits_as<Floats>(tiles_[b][k] << 16));
      odd_b[k] = flushed(bits_as<Floats>(tiles_[b][k] & 0xffff0000u));
    }
    for (int m = 0; m < config_->rows[c]; ++m) {
      const Floats even_a = flushed(bits_as<Floats>(tiles_[a][m] << 16));
      const Floats odd_a = flushed(bits_as<Floats>(tiles_[a][m] & 0xffff0000u));
      Floats even{}, odd{};
      for (int k = 0; k < tile_side; ++k) {
        even = flushed(ATTUNE_LEVEL::multiply_add(splat(even_a[k]), even_b[k], even));
        odd = flushed(ATTUNE_LEVEL::multiply_add(splat(odd_a[k]), odd_b[k], odd));
      }
      const Floats sum = flushed(bits_as<Floats>(tiles_[c][m])) + flushed(even + odd);
      tiles_[c][m] = bits_as<Words>(flushed(sum));
    }
  }
  void pause() {}

 private:
  const TileConfig* config_ = &tile_config;
  Words tiles_[tile_count][tile_side];
};

#else

// The calling thread's tiles, configured as long as this lives. Whoever finds them configured afterwards may be misled,
// and every switch of threads would carry 8 KiB more.
// Assembly, because GCC's intrinsics take a tile's number as text only.
//
// On a core whose other thread is busy, tile instructions take up to 1.7 times as long where fewer than seven others
// are between them; on an idle one it makes no difference. So loads are followed by instructions that do nothing, and
// pause() adds some between products, where there is no other work.
#define ATTUNE_GAP "\n.rept 8\n nop\n.endr"
class Tiles {
 public:
  Tiles() { configure(tile_config); }
  ~Tiles() { asm volatile("tilerelease" : : : "memory"); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  // Other shapes from now on; what tiles hold is lost.
  void configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config) : "memory"); }

  template <int t>
  void load(const void* from, int64_t pitch) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ATTUNE_GAP : : "r"(from), "r"(pitch), "i"(t) : "memory");
  }
  // The same for what comes from the L2 cache and is not used again soon: the L1 cache is left to the others.
  template <int t>
  void stream(const void* from, int64_t pitch) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ATTUNE_GAP : : "r"(from), "r"(pitch), "i"(t) : "memory");
  }
  template <int t>
  void store(void* to, int64_t pitch) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(pitch), "i"(t) : "memory");
  }
  template <int t>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(t));
  }
  // c += a * b
  template <int c, int a, int b>
  void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(c), "i"(a), "i"(b));
  }
  void pause() { asm volatile(ATTUNE_GAP); }
};
#undef ATTUNE_GAP

#endif

// One product of small integers, compared with what it must be.
inline bool tiles_work() {
  alignas(64) uint32_t a[tile_side][tile_side], b[tile_side][tile_side];
  alignas(64) float c[tile_side][tile_side];
  const auto pair = [](int even, int odd) {
    const auto bits = [](int x) {
      const auto value = static_cast<float>(x);
      uint32_t word;
      __builtin_memcpy(&word, &value, sizeof word);
      return word;
    };
    return bits(even) >> 16 | (bits(odd) & 0xffff0000u);
  };
  const auto a_at = [](int m, int k) { return (m * 7 + k * 3) % 11 - 5; };
  const auto b_at = [](int k, int n) { return (k * 5 + n * 2) % 13 - 6; };
  for (int i = 0; i < tile_side; ++i) {
    for (int j = 0; j < tile_side; ++j) {
      a[i][j] = pair(a_at(i, 2 * j), a_at(i, 2 * j + 1));
      b[i][j] = pair(b_at(2 * i, j), b_at(2 * i + 1, j));
    }
  }
  {
    Tiles tiles;
    tiles.zero<0>();
    tiles.load<1>(a, tile_row_bytes);
    tiles.load<2>(b, tile_row_bytes);
    tiles.multiply_add<0, 1, 2>();
    tiles.store<0>(c, tile_row_bytes);
  }
  for (int m = 0; m < tile_side; ++m) {
    for (int n = 0; n < tile_side; ++n) {
      int expected = 0;
      for (int k = 0; k < 2 * tile_side; ++k) expected += a_at(m, k) * b_at(k, n);
      if (c[m][n] != static_cast<float>(expected)) return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
