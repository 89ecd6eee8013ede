// How a tile of 16-bit elements lies in shared memory, for every swizzle, and the descriptor by which wgmma finds it.
//
// A tile is cut into panels as wide as the swizzle's span. Inside a panel rows follow each other, and the 16-byte
// chunks of a row are exchanged by the swizzle; without one, a panel is a single chunk wide. This is what the copy
// engine writes for a box of {panel_columns, rows, panels}. wgmma.cuh has short names for the 128-byte case.
#pragma once

#include "kernels/common/types.cuh"

namespace attune::device {

enum class Swizzle : int32_t { none = 0, b32 = 1, b64 = 2, b128 = 3 };  // the values of CUtensorMapSwizzle

// Which index of an operand is contiguous in shared memory: the contracted one (k), or the row of A, column of B (mn).
enum class Major { k, mn };

struct TileLayout {
  Swizzle swizzle;
  int rows;

  ATTUNE_SHARED_CODE int span_bytes() const { return 16 << static_cast<int>(swizzle); }
  ATTUNE_SHARED_CODE int panel_columns() const { return span_bytes() / 2; }
  ATTUNE_SHARED_CODE int panel_bytes() const { return rows * span_bytes(); }
  ATTUNE_SHARED_CODE int tile_bytes(int columns) const { return ceil_div(columns, panel_columns()) * panel_bytes(); }

  // The pattern repeats after eight rows, and the hardware takes it from the address: a tile starts at a multiple, and
  // so must every panel, which is why `rows` is a multiple of 8.
  ATTUNE_SHARED_CODE int alignment_bytes() const { return 8 * span_bytes(); }

  // Byte offset of an element.
  ATTUNE_SHARED_CODE int offset(int row, int column) const {
    const int in_panel = row * span_bytes() + column % panel_columns() * 2;
    return column / panel_columns() * panel_bytes() + (in_panel ^ ((in_panel >> 3) & (span_bytes() - 16)));
  }

  // `address` is that of the tile, or of a part of it that starts with a panel and a multiple of eight rows, plus
  // step_bytes. Rows are the m or n of the product for Major::k and its contracted index for Major::mn.
  ATTUNE_SHARED_CODE uint64_t descriptor(uint32_t address, Major major) const {
    const bool plain = swizzle == Swizzle::none;
    const uint32_t panel = static_cast<uint32_t>(panel_bytes()), group = static_cast<uint32_t>(alignment_bytes());
    // One product spans 16 elements of k. K-major, they lie within a panel, unless panels are one chunk wide. MN-major,
    // they are two groups of eight rows; without a swizzle the two fields then change their roles.
    const uint32_t unused = 16;
    const uint32_t leading = major == Major::k ? (plain ? panel : unused) : (plain ? group : panel);
    const uint32_t stride = major == Major::mn && plain ? panel : group;
    const uint64_t code = plain ? 0 : 4 - static_cast<uint64_t>(swizzle);  // 1 is 128 bytes, 2 is 64, 3 is 32
    return uint64_t{(address & 0x3ffffu) >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 |
           code << 62;
  }

  // How far the address moves for the step-th 16 elements of the contracted index. A sixteenth of it may be added to
  // the descriptor instead.
  ATTUNE_SHARED_CODE int step_bytes(int step, Major major) const {
    if (major == Major::mn) return step * 16 * span_bytes();
    return step * 16 / panel_columns() * panel_bytes() + step * 16 % panel_columns() * 2;
  }
};

}  // namespace attune::device
