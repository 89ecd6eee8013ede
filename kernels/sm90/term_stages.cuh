// Terms of scores that wait in shared memory beside their block of K: a warp of the producer brings them with it, and
// a warp that scores a block, or scores it again, adds them there.
//
// Terms come in two forms, which may go together. A vector has one float32 for each key: biases and masks that are the
// same for all rows of a tile, whatever their strides and types are. A tile has one element for each score, as it lies
// in memory. The copy engine loads it in panels with a swizzle, so that a warp finds its fragment without conflicts.
#pragma once

#include "kernels/common/convert.cuh"
#include "kernels/common/softmax.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/sm90/call.cuh"
#include "kernels/sm90/scores.cuh"

namespace attune::device::sm90 {

// How a tile of terms of 64 rows and one block of keys lies: panels as wide as the swizzle's span.
struct TermLayout {
  TermTile tile;
  int block_n;

  ATTUNE_SHARED_CODE int element_bytes() const { return static_cast<int>(tile); }
  ATTUNE_SHARED_CODE int span_bytes() const {
    const int row_bytes = block_n * element_bytes();
    return row_bytes <= 32 ? 32 : row_bytes <= 64 ? 64 : 128;
  }
  ATTUNE_SHARED_CODE int panel_columns() const { return span_bytes() / max_of(element_bytes(), 1); }
  ATTUNE_SHARED_CODE int panels() const { return ceil_div(block_n, panel_columns()); }
  ATTUNE_SHARED_CODE int panel_bytes() const { return rows_per_warpgroup * span_bytes(); }
  ATTUNE_SHARED_CODE int bytes() const { return tile == TermTile::none ? 0 : panels() * panel_bytes(); }

  // Byte offset of an element.
  ATTUNE_SHARED_CODE int offset(int row, int column) const {
    const int in_panel = row * span_bytes() + column % panel_columns() * element_bytes();
    return column / panel_columns() * panel_bytes() + (in_panel ^ ((in_panel >> 3) & (span_bytes() - 16)));
  }
};

#ifdef __CUDACC_RTC__

// The term that the vector has for a key of a tile's sequence.
template <Dtype dtype, TermTile tile_terms>
ATTUNE_DEVICE float key_term(const Call& call, const Tile& tile, int key) {
  const auto at = [&](const ScoreTensor& tensor) {
    return tile.sequence * tensor.batch_stride + tile.head * call.pack.heads() * tensor.head_stride +
           key * tensor.key_stride;
  };
  float term = 0;
  if (call.bias.data != nullptr && (tile_terms == TermTile::none || tile_terms == TermTile::mask))
    term = call.bias_is_float ? static_cast<const float*>(call.bias.data)[at(call.bias)]
                              : to_float<dtype>(static_cast<const uint16_t*>(call.bias.data)[at(call.bias)]);
  if (call.mask.data != nullptr && tile_terms != TermTile::mask &&
      static_cast<const uint8_t*>(call.mask.data)[at(call.mask)] == 0)
    term = minus_infinity;
  return term;
}

// By a whole warp: the vector of the block that begins at key `start`. Keys past the end are hidden in any case.
template <Dtype dtype, TermTile tile_terms, int block_n>
ATTUNE_DEVICE void load_key_terms(float (&keys)[block_n], const Call& call, const Tile& tile, int start, int lane) {
#pragma unroll
  for (int i = 0; i < block_n; i += 32) {
    const int key = start + i + lane;
    if (i + lane < block_n) keys[i + lane] = key < tile.band.keys ? key_term<dtype, tile_terms>(call, tile, key) : 0.f;
  }
}

template <TermTile tile_terms>
ATTUNE_DEVICE const ScoreTensor& tile_tensor(const Call& call) {
  return tile_terms == TermTile::mask ? call.mask : call.bias;
}

// By one lane: the tile of 64 rows from position `first_row` on.
template <TermTile tile_terms, int block_n>
ATTUNE_DEVICE void copy_term_tile(uint8_t* place, const Call& call, const Tile& tile, int first_row, int start,
                                  Mbarrier& full) {
  constexpr TermLayout layout{tile_terms, block_n};
  const ScoreTensor& tensor = tile_tensor<tile_terms>(call);
  // The map has one head or sequence where these are broadcast.
  const int head = tensor.head_stride == 0 ? 0 : tile.head, sequence = tensor.batch_stride == 0 ? 0 : tile.sequence;
  for (int panel = 0; panel < layout.panels(); ++panel)
    tma_load_5d(place + panel * layout.panel_bytes(), call.terms, full, start + panel * layout.panel_columns(),
                first_row, head, sequence, 0, Evict::normal);
}

// By a whole warp, for a tensor whose address the copy engine does not take. Slow.
template <TermTile tile_terms, int block_n>
ATTUNE_DEVICE void copy_term_tile_by_lanes(uint8_t* place, const Call& call, const Tile& tile, int first_row, int start,
                                           int lane) {
  constexpr TermLayout layout{tile_terms, block_n};
  const ScoreTensor& tensor = tile_tensor<tile_terms>(call);
  const auto* from = static_cast<const uint8_t*>(tensor.data);
  for (int i = lane; i < rows_per_warpgroup * block_n; i += 32) {
    const int row = i / block_n, column = i % block_n, position = first_row + row, key = start + column;
    if (position >= tile.rows_used || key >= tile.band.keys) continue;
    const int64_t at = tile.sequence * tensor.batch_stride + tile.head * tensor.head_stride +
                       position * tensor.row_stride + key * tensor.key_stride;
    for (int byte = 0; byte < layout.element_bytes(); ++byte)
      place[layout.offset(row, column) + byte] = from[at * layout.element_bytes() + byte];
  }
}

// Scores of a warp become logits: products times `scale`, and terms. `place`: the tile of its warpgroup; `keys`: the
// vector, null if there is none.
template <Dtype dtype, TermTile tile_terms, int block_n, int columns>
ATTUNE_DEVICE void add_staged_terms(float (&s)[columns / 2], float scale, const uint8_t* place, const float* keys,
                                    int warp, int lane) {
  constexpr TermLayout layout{tile_terms, block_n};
  const int row = warp * 16 + lane / 4, pair = lane % 4 * 2;
  if constexpr (tile_terms == TermTile::half) {
#pragma unroll
    for (int i = 0; i < columns / 16; ++i) {
      uint32_t x[4];
      ldmatrix_x4(x, place + layout.offset(warp * 16 + lane % 16, 16 * i + lane / 16 * 8));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[8 * i + 2 * j] = fmaf(s[8 * i + 2 * j], scale, to_float<dtype>(static_cast<uint16_t>(x[j])));
        s[8 * i + 2 * j + 1] = fmaf(s[8 * i + 2 * j + 1], scale, to_float<dtype>(static_cast<uint16_t>(x[j] >> 16)));
      }
    }
  } else if constexpr (tile_terms != TermTile::none) {
#pragma unroll
    for (int j = 0; j < columns / 4; ++j) {
      const uint8_t* at = place + layout.offset(row + j % 2 * 8, j / 2 * 8 + pair);
      if constexpr (tile_terms == TermTile::single) {
        s[2 * j] = fmaf(s[2 * j], scale, reinterpret_cast<const float*>(at)[0]);
        s[2 * j + 1] = fmaf(s[2 * j + 1], scale, reinterpret_cast<const float*>(at)[1]);
      } else {
        const uint32_t shows = *reinterpret_cast<const uint16_t*>(at);
        s[2 * j] = (shows & 0xffu) == 0 ? minus_infinity : s[2 * j] * scale;
        s[2 * j + 1] = (shows & 0xff00u) == 0 ? minus_infinity : s[2 * j + 1] * scale;
      }
    }
  }
  if (keys == nullptr) {
    if (tile_terms != TermTile::none) return;
#pragma unroll
    for (int j = 0; j < columns / 2; ++j) s[j] *= scale;
    return;
  }
#pragma unroll
  for (int j = 0; j < columns / 8; ++j) {
    const float term[2] = {keys[8 * j + pair], keys[8 * j + pair + 1]};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[4 * j + i] = tile_terms == TermTile::none ? fmaf(s[4 * j + i], scale, term[i % 2]) : s[4 * j + i] + term[i % 2];
  }
}

// outgrown() where terms may have hidden from a row all that came before this block: then it has no maximum to trust.
template <Dtype dtype, bool maybe_empty>
ATTUNE_DEVICE bool outgrown(const float (&block_sum)[2], const RowState& rows) {
  if constexpr (!maybe_empty) return device::outgrown<dtype>(block_sum);
  const auto limit = [&](int i) { return rows.max[i] == minus_infinity ? 0.f : trusted_sum<dtype>; };
  return __any_sync(0xffffffffu, block_sum[0] > limit(0) || block_sum[1] > limit(1));
}

#endif

}  // namespace attune::device::sm90
