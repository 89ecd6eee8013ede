// Operands of bf16: no conversion. K is copied where it cannot be read in place; pairs of keys of V, and pairs of
// channels of Q, are transposed.
#pragma once

#include "cpu/level/tile_operands.inl.hpp"

namespace attune::cpu::ATTUNE_LEVEL {
namespace {

// The first `count` of 32 halves, or all.
inline __mmask32 first_halves(int64_t count) { return ~__mmask32{0} >> (32 - smaller_of(count, 32)); }

// The first `count` bf16 at `from`, 32 at most, then zeros.
inline Words load_pairs(const char* from, int64_t count) {
  if (count >= 32) return load_bytes<Words>(from);
  return bits_as<Words>(_mm512_maskz_loadu_epi16(first_halves(count), from));
}

// is_special() of bf16.
inline __mmask32 special_pairs(Words pairs) {
  const __m512i magnitude = bits_as<__m512i>(pairs & 0x7fff7fffu);
  const __m512i infinite = _mm512_set1_epi16(0x7f80), least = _mm512_set1_epi16(0x0d80), one = _mm512_set1_epi16(1);
  return _mm512_cmpge_epu16_mask(magnitude, infinite) |
         _mm512_cmplt_epu16_mask(_mm512_sub_epi16(magnitude, one), _mm512_sub_epi16(least, one));
}

// Products of pairs take numbers below 2^-126 for 0, and 0 times what is not finite for NaN. Sums that came out like
// that are not finite, or so small that what was lost may count.
inline Ints may_be_wrong(Floats sums) {
  constexpr uint32_t least = 0x21800000u;  // 2^-60
  return (bits_as<Words>(sums) & 0x7fffffffu) - least >= 0x7f800000u - least;
}

// Looks at many values for the price of three instructions each. A value of 0 looks special, too.
class SpecialWatch {
 public:
  void look(Words pairs) {
    // Twice the bits drop the sign, and what is left of 2^-100 on, and finite, lies below `beyond`.
    const AllHalves twice = bits_as<AllHalves>(pairs) + bits_as<AllHalves>(pairs) - least;
    worst_ = twice > worst_ ? twice : worst_;
  }
  bool may_be_special() const {
    return _mm512_cmpge_epu16_mask(bits_as<__m512i>(worst_), bits_as<__m512i>(AllHalves{} + beyond)) != 0;
  }

 private:
  using AllHalves = uint16_t __attribute__((vector_size(64)));
  static constexpr uint16_t least = 2 * 0x0d80, beyond = 2 * 0x7f80 - least;
  AllHalves worst_{};
};

// `keys` <= 32 keys from `first`, then zeros, as tiles of K.
inline void copy_k_step(const Call& call, const Block& block, const TileLayout& layout, int64_t first, int64_t keys,
                        char* to) {
  const Problem& p = *call.problem;
  const char* const k = element(call.operands->in(Operand::k), p.dtype, key_offset(p, p.k, block, first));
  for (int64_t key = 0; key < step_keys; ++key) {
    char* const tile = to + key / tile_side * layout.qk_steps * tile_bytes + key % tile_side * tile_row_bytes;
    const char* const row = k + key * p.k.row * 2;
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      const char* const from = row + step * tile_row_bytes;
      fetch_later(from + step_keys * p.k.row * 2);
      store_bytes(tile + step * tile_bytes, key < keys ? load_pairs(from, p.dim_qk - step * step_channels) : Words{});
    }
  }
}

// A strip of 32 columns of the same keys' values, transposed. Returns whether some may be special; with `clean`, those
// become 0, and it returns whether there are any.
template <bool clean>
bool transpose_v_strip(const char* v, int64_t pitch, int64_t keys, int64_t columns, char* to) {
  __mmask32 special = 0;
  SpecialWatch watch;
  const auto load_key = [&](int64_t key) {
    if (key >= keys) return __m512i{};
    const Words pairs = load_pairs(v + key * pitch, columns);
    fetch_later(v + (key + step_keys) * pitch);
    if constexpr (clean) {
      const __mmask32 unfit = special_pairs(pairs);
      special |= unfit;
      return _mm512_maskz_mov_epi16(~unfit, bits_as<__m512i>(pairs));
    }
    watch.look(pairs);
    return bits_as<__m512i>(pairs);
  };
  // Two keys are interleaved within quarters of a vector: of each eight columns, four are in `low`, four in `high`.
  Words low[tile_side], high[tile_side];
  for (int64_t pair = 0; pair < tile_side; ++pair) {
    const __m512i even = load_key(2 * pair), odd = load_key(2 * pair + 1);
    low[pair] = bits_as<Words>(_mm512_unpacklo_epi16(even, odd));
    high[pair] = bits_as<Words>(_mm512_unpackhi_epi16(even, odd));
  }
  const auto column_at = [&](int i, int first) { return to + (i / 4 * 8 + i % 4 + first) * tile_row_bytes; };
  transpose_to(low, [&](int i, Words column) { store_bytes(column_at(i, 0), column); });
  transpose_to(high, [&](int i, Words column) { store_bytes(column_at(i, 4), column); });
  return clean ? special != 0 : watch.may_be_special();
}

// The same keys' values, transposed; what is special in them becomes 0. True if something was.
inline bool transpose_v_step(const Call& call, const Block& block, const TileLayout& layout, int64_t from, int64_t keys,
                             char* to) {
  const Problem& p = *call.problem;
  const char* v = element(call.operands->in(Operand::v), p.dtype, key_offset(p, p.v, block, from));
  bool special = false;
  for (int64_t strip = 0; strip < layout.v_strips; ++strip, v += tile_row_bytes, to += 2 * tile_bytes) {
    const int64_t columns = p.dim_v - strip * 2 * tile_side;
    if (transpose_v_strip<false>(v, p.v.row * 2, keys, columns, to)) [[unlikely]]
      special |= transpose_v_strip<true>(v, p.v.row * 2, keys, columns, to);
  }
  return special;
}

// The rows [first, first + count) of a block as tiles of Q, zeros up to 32 rows.
inline void transpose_q(const Call& call, const Block& block, const TileLayout& layout, int first, int count,
                        char* to) {
  const Problem& p = *call.problem;
  const uint32_t sign = call.q_factor < 0 ? 0x80008000u : 0;
  for (int half = 0; half < 2; ++half) {
    const char* rows[tile_side];
    for (int i = 0; i < tile_side; ++i) rows[i] = q_row(call, block, first, half * tile_side + i, count);
    for (int64_t step = 0; step < layout.qk_steps; ++step) {
      Words tile[tile_side];
      for (int i = 0; i < tile_side; ++i) {
        tile[i] = Words{};
        if (rows[i] != nullptr)
          tile[i] = load_pairs(rows[i] + step * tile_row_bytes, p.dim_qk - step * step_channels) ^ sign;
      }
      transpose(tile, to + (step * 2 + half) * tile_bytes);
    }
  }
}

}  // namespace
}  // namespace attune::cpu::ATTUNE_LEVEL
