// Swizzles and descriptors on the host: where an element lies, and where the tensor core looks for it.
#include <gtest/gtest.h>

#include <set>

#include "kernels/common/tile_layout.cuh"
#include "kernels/common/wgmma.cuh"

namespace attune::device {
namespace {

constexpr Swizzle swizzles[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};

// As the hardware documents it, on the address: bits 4.. are XORed with bits 7.., one, two or three of them.
constexpr int hardware_swizzle(int address, Swizzle swizzle) {
  constexpr int masks[] = {0, 0x10, 0x30, 0x70};
  return address ^ ((address >> 3) & masks[static_cast<int>(swizzle)]);
}

TEST(TileLayout, IsWhatTheCopyEngineWrites) {
  for (const Swizzle swizzle : swizzles)
    for (const int rows : {8, 64, 80, 176}) {
      const TileLayout layout{swizzle, rows};
      const int columns = 128;
      std::set<int> seen;
      for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
          const int panel = column / layout.panel_columns();
          const int linear = row * layout.span_bytes() + column % layout.panel_columns() * 2;
          const int offset = layout.offset(row, column);
          ASSERT_EQ(offset, panel * layout.panel_bytes() + hardware_swizzle(linear, swizzle))
              << "swizzle " << static_cast<int>(swizzle) << " row " << row << " column " << column;
          seen.insert(offset);
        }
      EXPECT_EQ(seen.size(), static_cast<size_t>(rows * columns)) << "two elements in one place";
      EXPECT_EQ(*seen.rbegin() + 2, layout.tile_bytes(columns));
      EXPECT_EQ(layout.panel_bytes() % layout.alignment_bytes(), 0);
    }
}

TEST(TileLayout, ShortNamesAreThe128ByteCase) {
  for (const int rows : {64, 128, 176}) {
    const TileLayout layout{Swizzle::b128, rows};
    EXPECT_EQ(panel_columns, layout.panel_columns());
    EXPECT_EQ(panel_row_bytes, layout.span_bytes());
    EXPECT_EQ(panel_bytes(rows), layout.panel_bytes());
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < 256; ++column)
        ASSERT_EQ(swizzled_offset(row, column, rows), layout.offset(row, column)) << row << " " << column;
    for (const uint32_t address : {0u, 1024u, 0x38c00u}) {
      EXPECT_EQ(k_major_descriptor(address), layout.descriptor(address, Major::k));
      EXPECT_EQ(mn_major_descriptor(address, rows), layout.descriptor(address, Major::mn));
    }
  }
}

struct Fields {
  uint64_t start, leading, stride, base, code, rest;
  bool operator==(const Fields&) const = default;
};

constexpr Fields fields_of(uint64_t descriptor) {
  const auto bits = [&](int first, int count) { return (descriptor >> first) & ((uint64_t{1} << count) - 1); };
  return {bits(0, 14) * 16, bits(16, 14) * 16, bits(32, 14) * 16,
          bits(49, 3),      bits(62, 2),       bits(14, 2) | bits(30, 2) | bits(46, 3) | bits(52, 10)};
}

TEST(Descriptor, FieldsHaveTheirPlaces) {
  using enum Major;
  static_assert(fields_of(TileLayout{Swizzle::b128, 64}.descriptor(0x400, k)) == Fields{0x400, 16, 1024, 0, 1, 0});
  static_assert(fields_of(TileLayout{Swizzle::b64, 64}.descriptor(0x400, k)) == Fields{0x400, 16, 512, 0, 2, 0});
  static_assert(fields_of(TileLayout{Swizzle::b32, 64}.descriptor(0x400, k)) == Fields{0x400, 16, 256, 0, 3, 0});
  static_assert(fields_of(TileLayout{Swizzle::none, 64}.descriptor(0x400, k)) == Fields{0x400, 1024, 128, 0, 0, 0});
  static_assert(fields_of(TileLayout{Swizzle::b128, 80}.descriptor(0x400, mn)) == Fields{0x400, 10240, 1024, 0, 1, 0});
  static_assert(fields_of(TileLayout{Swizzle::b64, 80}.descriptor(0x400, mn)) == Fields{0x400, 5120, 512, 0, 2, 0});
  static_assert(fields_of(TileLayout{Swizzle::b32, 80}.descriptor(0x400, mn)) == Fields{0x400, 2560, 256, 0, 3, 0});
  static_assert(fields_of(TileLayout{Swizzle::none, 80}.descriptor(0x400, mn)) == Fields{0x400, 128, 1280, 0, 0, 0});
  // The window of a CTA in the shared memory of its cluster is no part of the address.
  EXPECT_EQ(TileLayout({Swizzle::b128, 64}).descriptor(0x3000400, k),
            TileLayout({Swizzle::b128, 64}).descriptor(0x400, k));
}

// Where the tensor core looks for element (mn, k) of one product: the canonical layouts of the PTX manual, in chunks of
// eight elements.
int place_by_hardware(uint64_t descriptor, Major major, int mn, int k) {
  const Fields fields = fields_of(descriptor);
  const auto swizzle = static_cast<Swizzle>(fields.code == 0 ? 0 : 4 - fields.code);
  const int chunks = 1 << static_cast<int>(swizzle);  // of a row of the pattern
  const int leading = static_cast<int>(fields.leading), stride = static_cast<int>(fields.stride);
  int address = static_cast<int>(fields.start);
  if (major == Major::k)
    address += mn % 8 * chunks * 16 + mn / 8 * stride + k / 8 * (chunks == 1 ? leading : 16) + k % 8 * 2;
  else if (chunks == 1)
    address += mn % 8 * 2 + mn / 8 * stride + k % 8 * 16 + k / 8 * leading;
  else
    address += mn % 8 * 2 + mn / 8 % chunks * 16 + mn / 8 / chunks * leading + k % 8 * chunks * 16 + k / 8 * stride;
  return hardware_swizzle(address, swizzle);
}

TEST(Descriptor, LeadsTheTensorCoreToEveryElement) {
  const int base = 3 * 1024, depth = 128;
  for (const Swizzle swizzle : swizzles)
    for (const Major major : {Major::k, Major::mn})
      for (const int width : {32, 48, 64, 80, 176, 256}) {
        const TileLayout layout{swizzle, major == Major::k ? width : depth};
        for (int step = 0; step < depth / 16; ++step) {
          const auto start = static_cast<uint32_t>(base + layout.step_bytes(step, major));
          const uint64_t descriptor = layout.descriptor(start, major);
          ASSERT_EQ(descriptor,
                    layout.descriptor(base, major) + static_cast<uint64_t>(layout.step_bytes(step, major) / 16))
              << "a step may be added to the descriptor";
          for (int mn = 0; mn < width; ++mn)
            for (int k = 0; k < 16; ++k) {
              const int depth_index = 16 * step + k;
              const int offset = major == Major::k ? layout.offset(mn, depth_index) : layout.offset(depth_index, mn);
              ASSERT_EQ(place_by_hardware(descriptor, major, mn, k), base + offset)
                  << "swizzle " << static_cast<int>(swizzle) << " major " << static_cast<int>(major) << " width "
                  << width << " step " << step << " mn " << mn << " k " << k;
            }
        }
      }
}

}  // namespace
}  // namespace attune::device
