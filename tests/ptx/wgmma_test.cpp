// wgmma on a GPU, every width and form, against products of small integers, which are exact in every format.
#include <gtest/gtest.h>

#include "core/convert.hpp"
#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

using device::Major;
using device::Swizzle;
using device::TileLayout;
using device::test_wgmma::depth;
using device::test_wgmma::Params;
using device::test_wgmma::rows;

// A matrix of small integers.
struct Matrix {
  int height, width;
  std::vector<int> values = std::vector<int>(static_cast<size_t>(height) * width);
  int& at(int row, int column) { return values[static_cast<size_t>(row) * width + column]; }
  int at(int row, int column) const { return values[static_cast<size_t>(row) * width + column]; }
};

uint16_t bits_of(int value, device::Dtype dtype) {
  const auto x = static_cast<float>(value);
  return dtype == device::Dtype::f16 ? float_to_f16(x) : float_to_bf16(x);
}

// 0..7, without any pattern.
int scrambled(int i, int j) {
  uint32_t x = static_cast<uint32_t>(i * 1024 + j) * 2654435761u;
  x = (x ^ (x >> 15)) * 2246822519u;
  return static_cast<int>(x >> 29);
}

// `scrambled` fails wherever any element is taken for another. In the other two, D shows which row or column of B was
// read: A has a single 1 in each row, and B holds its own row or column number.
enum class Fill { scrambled, row_numbers, column_numbers };

Matrix make_a(Fill fill) {
  Matrix a{rows, depth};
  for (int m = 0; m < rows; ++m)
    for (int k = 0; k < depth; ++k)
      a.at(m, k) = fill == Fill::scrambled ? scrambled(m, k) - 3 : k == (5 * m + 3) % depth;
  return a;
}

Matrix make_b(Fill fill, int n) {
  Matrix b{depth, n};
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < n; ++j)
      b.at(k, j) = fill == Fill::scrambled ? scrambled(300 + k, j) - 4 : fill == Fill::row_numbers ? k : j;
  return b;
}

// What shared memory holds: the tile's rows are the matrix's rows, or its columns.
std::vector<uint32_t> image_of(const Matrix& matrix, bool by_columns, TileLayout layout, device::Dtype dtype) {
  const int tile_rows = by_columns ? matrix.width : matrix.height, columns = by_columns ? matrix.height : matrix.width;
  std::vector<uint32_t> words(static_cast<size_t>(layout.tile_bytes(columns)) / 4);
  for (int row = 0; row < tile_rows; ++row)
    for (int column = 0; column < columns; ++column) {
      const int offset = layout.offset(row, column);
      const uint32_t bits = bits_of(by_columns ? matrix.at(column, row) : matrix.at(row, column), dtype);
      words[static_cast<size_t>(offset) / 4] |= bits << (offset % 4 * 8);
    }
  return words;
}

std::vector<float> product_of(const Matrix& a, const Matrix& b, const std::vector<float>& start, bool accumulate) {
  std::vector<float> d(start.size());
  for (int m = 0; m < a.height; ++m) {
    std::vector<int> sums(static_cast<size_t>(b.width));
    for (int k = 0; k < a.width; ++k)
      if (const int factor = a.at(m, k); factor != 0)
        for (int j = 0; j < b.width; ++j) sums[static_cast<size_t>(j)] += factor * b.at(k, j);
    for (int j = 0; j < b.width; ++j) {
      const size_t i = static_cast<size_t>(m) * b.width + j;
      d[i] = static_cast<float>(sums[static_cast<size_t>(j)]) + (accumulate ? start[i] : 0);
    }
  }
  return d;
}

class Wgmma : public PtxTest, public testing::WithParamInterface<int> {
 protected:
  void check_all(int n, Major a_major, bool a_in_registers);
};

void Wgmma::check_all(int n, Major a_major, bool a_in_registers) {
  const jit::DeviceUnit unit = wgmma_unit(n, a_major);
  std::vector<float> start(static_cast<size_t>(rows) * n);
  for (size_t i = 0; i < start.size(); ++i) start[i] = static_cast<float>(i % 97);
  for (const Fill fill : {Fill::scrambled, Fill::row_numbers, Fill::column_numbers}) {
    const Matrix a = make_a(fill), b = make_b(fill, n);
    const bool accumulate = fill == Fill::scrambled;
    const std::vector<float> expected = product_of(a, b, start, accumulate);
    for (const device::Dtype dtype : {device::Dtype::f16, device::Dtype::bf16}) {
      std::vector<uint16_t> a_rows;
      for (const int value : a.values) a_rows.push_back(bits_of(value, dtype));
      const Buffer<uint16_t> a_rows_there(a_rows);
      for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128})
        for (const Major b_major : {Major::k, Major::mn}) {
          const TileLayout a_layout{swizzle, a_major == Major::k ? rows : depth};
          const TileLayout b_layout{swizzle, b_major == Major::k ? n : depth};
          const std::vector<uint32_t> a_image = image_of(a, a_major == Major::mn, a_layout, dtype);
          const std::vector<uint32_t> b_image = image_of(b, b_major == Major::k, b_layout, dtype);
          const Buffer<uint32_t> a_there(a_image), b_there(b_image);
          const Buffer<float> d(start);
          Params params{};
          params.a_image = a_there.pointer();
          params.b_image = b_there.pointer();
          params.a_rows = a_rows_there.pointer();
          params.d = d.pointer();
          params.a_bytes = static_cast<int>(a_image.size() * 4);
          params.b_bytes = static_cast<int>(b_image.size() * 4);
          params.a_layout = a_layout;
          params.b_layout = b_layout;
          params.dtype = dtype;
          params.b_major = b_major;
          params.a_in_registers = a_in_registers;
          params.accumulate = accumulate;
          launch(unit, {1, 1, 1}, params);
          finish();
          EXPECT_EQ(difference(d.read(), expected), "")
              << "n " << n << ", fill " << static_cast<int>(fill) << ", dtype " << static_cast<int>(dtype)
              << ", swizzle " << static_cast<int>(swizzle) << ", B major " << (b_major == Major::k ? "k" : "n");
        }
    }
  }
}

TEST_P(Wgmma, BothOperandsInSharedMemory) { check_all(GetParam(), Major::k, false); }
TEST_P(Wgmma, AInRegisters) { check_all(GetParam(), Major::k, true); }

INSTANTIATE_TEST_SUITE_P(Width, Wgmma, testing::ValuesIn(wgmma_widths()), testing::PrintToStringParamName());

class WgmmaTransposedA : public Wgmma {};
TEST_P(WgmmaTransposedA, BothOperandsInSharedMemory) { check_all(GetParam(), Major::mn, false); }
INSTANTIATE_TEST_SUITE_P(Width, WgmmaTransposedA, testing::Values(64), testing::PrintToStringParamName());

// The tiles above must fit what the kernel asks for, whatever the layout.
TEST(WgmmaImages, FitSharedMemory) {
  for (const int n : wgmma_widths())
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
      const int a_bytes = TileLayout{swizzle, rows}.tile_bytes(depth);
      EXPECT_EQ(a_bytes % device::test_wgmma::shared_alignment, 0);
      for (const int b_bytes : {TileLayout{swizzle, n}.tile_bytes(depth), TileLayout{swizzle, depth}.tile_bytes(n)})
        EXPECT_LE(a_bytes + b_bytes, device::test_wgmma::shared_bytes(n)) << n;
    }
}

}  // namespace
}  // namespace attune::ptx
