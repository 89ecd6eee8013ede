// The copy engine on a GPU: boxes with each swizzle, also across the ends of a tensor; stores, additions, multicast.
#include <gtest/gtest.h>

#include <numeric>

#include "gpu/tensor_map.hpp"
#include "tests/ptx/harness.hpp"
#include "tests/ptx/units.hpp"

namespace attune::ptx {
namespace {

using device::Swizzle;
using device::TileLayout;
using device::test_tma::Operation;
using device::test_tma::Params;

constexpr Swizzle swizzles[] = {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128};
constexpr uint64_t evict_hints[] = {0x1000000000000000ull, 0x12F0000000000000ull, 0x14F0000000000000ull};

// A tensor [batch][row][head][column] of 16-bit elements, and a box of some rows of one head, by panels.
constexpr int batches = 2, tensor_rows = 37, heads = 3, columns = 128;
constexpr int batch = 1, head = 2;  // of every box below

size_t index_of(int row, int column) {
  return ((static_cast<size_t>(batch) * tensor_rows + row) * heads + head) * columns + column;
}

gpu::TensorMapSpec spec_of(Swizzle swizzle, int box_rows) {
  const TileLayout layout{swizzle, box_rows};
  const auto span = static_cast<uint32_t>(layout.span_bytes());
  const uint32_t panels = columns * 2 / span;
  gpu::TensorMapSpec spec;
  spec.rank = 5;
  spec.dims = {span / 2, tensor_rows, panels, heads, batches};
  const uint64_t head_bytes = uint64_t{2} * columns, row_bytes = heads * head_bytes;
  spec.stride_bytes = {row_bytes, span, head_bytes, tensor_rows * row_bytes};
  spec.box = {span / 2, static_cast<uint32_t>(box_rows), panels, 1, 1};
  spec.dtype = Dtype::f16;
  spec.swizzle = static_cast<gpu::CUtensorMapSwizzle>(swizzle);
  return spec;
}

std::vector<uint16_t> numbered_tensor() {
  std::vector<uint16_t> tensor(static_cast<size_t>(batches) * tensor_rows * heads * columns);
  std::iota(tensor.begin(), tensor.end(), uint16_t{1});
  return tensor;
}

// The box whose first row is `first`, as it lies in shared memory.
std::vector<uint8_t> image_of(const std::vector<uint16_t>& tensor, Swizzle swizzle, int first, int box_rows) {
  const TileLayout layout{swizzle, box_rows};
  std::vector<uint8_t> image(static_cast<size_t>(layout.tile_bytes(columns)));
  for (int row = 0; row < box_rows; ++row)
    for (int column = 0; column < columns; ++column) {
      const bool inside = first + row >= 0 && first + row < tensor_rows;
      const uint16_t value = inside ? tensor[index_of(first + row, column)] : uint16_t{0};
      const auto offset = static_cast<size_t>(layout.offset(row, column));
      image[offset] = static_cast<uint8_t>(value);
      image[offset + 1] = static_cast<uint8_t>(value >> 8);
    }
  return image;
}

class Tma : public PtxTest {
 protected:
  Params params_for(Operation operation, const gpu::TensorMapSpec& spec, const void* tensor, int first_row) {
    Params params{};
    params.map = gpu::tensor_map(driver(), spec, tensor);
    params.operation = operation;
    params.coordinates[1] = first_row;
    params.coordinates[3] = head;
    params.coordinates[4] = batch;
    params.evict = evict_hints[0];
    return params;
  }
};

TEST(TmaSpecs, AreLegal) {
  for (const Swizzle swizzle : swizzles) {
    EXPECT_EQ(gpu::tensor_map_refusal(spec_of(swizzle, 32)), "");
    EXPECT_LE(TileLayout({swizzle, 32}).tile_bytes(columns), device::test_tma::box_limit_bytes);
  }
}

TEST_F(Tma, LoadGivesZerosOutsideTheTensor) {
  const std::vector<uint16_t> tensor = numbered_tensor();
  const Buffer<uint16_t> there(tensor);
  const int box_rows = 32;
  for (const Swizzle swizzle : swizzles) {
    const gpu::TensorMapSpec spec = spec_of(swizzle, box_rows);
    const auto bytes = static_cast<size_t>(TileLayout{swizzle, box_rows}.tile_bytes(columns));
    for (const int first : {0, 3, 16, 36, 37, 1000, -5, -32}) {
      const Buffer<uint8_t> out(bytes, 0xee);
      Params params = params_for(Operation::load, spec, there.pointer(), first);
      params.bytes = static_cast<int>(bytes);
      params.out = out.pointer();
      params.evict = evict_hints[(first + 32) % 3];
      launch(tma_unit(), {1, 1, 1}, params);
      finish();
      EXPECT_EQ(difference(out.read(), image_of(tensor, swizzle, first, box_rows)), "")
          << "swizzle " << static_cast<int>(swizzle) << ", rows from " << first;
    }
  }
}

TEST_F(Tma, MulticastReachesBothCtas) {
  const std::vector<uint16_t> tensor = numbered_tensor();
  const Buffer<uint16_t> there(tensor);
  const int box_rows = 16, first = 8;  // the second box ends outside
  for (const Swizzle swizzle : swizzles) {
    const auto bytes = static_cast<size_t>(TileLayout{swizzle, box_rows}.tile_bytes(columns));
    const Buffer<uint8_t> out(4 * bytes, 0xee);
    Params params = params_for(Operation::multicast, spec_of(swizzle, box_rows), there.pointer(), first);
    params.bytes = static_cast<int>(bytes);
    params.rows_per_cta = box_rows;
    params.out = out.pointer();
    launch(tma_unit(device::test_tma::cluster_ctas), {2, 1, 1}, params);
    finish();
    std::vector<uint8_t> expected;
    for (int cta = 0; cta < 2; ++cta)
      for (int box = 0; box < 2; ++box) {
        const std::vector<uint8_t> image = image_of(tensor, swizzle, first + box * box_rows, box_rows);
        expected.insert(expected.end(), image.begin(), image.end());
      }
    EXPECT_EQ(difference(out.read(), expected), "") << "swizzle " << static_cast<int>(swizzle);
  }
}

class TmaStore : public Tma, public testing::WithParamInterface<std::tuple<Swizzle, int>> {};

TEST_P(TmaStore, EndsWithTheTensor) {
  const auto [swizzle, first] = GetParam();
  constexpr int box_rows = 32;
  const std::vector<uint16_t> source = numbered_tensor();
  std::vector<uint16_t> expected(source.size(), 0x7777);
  for (int row = first; row < std::min(first + box_rows, tensor_rows); ++row)
    for (int column = 0; column < columns; ++column) expected[index_of(row, column)] = source[index_of(row, column)];
  const Buffer<uint16_t> target(source.size(), 0x77);
  std::vector<uint8_t> image = image_of(source, swizzle, first, box_rows);
  // Rows outside the tensor hold something that would show.
  for (int row = 0; row < box_rows; ++row)
    for (int column = 0; column < columns; ++column)
      if (first + row >= tensor_rows)
        image[static_cast<size_t>(TileLayout{swizzle, box_rows}.offset(row, column))] = 0xbb;
  const Buffer<uint8_t> in(image);
  Params params = params_for(Operation::store, spec_of(swizzle, box_rows), target.pointer(), first);
  params.bytes = static_cast<int>(image.size());
  params.in = in.pointer();
  launch(tma_unit(), {1, 1, 1}, params);
  finish();
  EXPECT_EQ(difference(target.read(), expected), "");
}

std::string box_name(const testing::TestParamInfo<std::tuple<Swizzle, int>>& test) {
  const auto [swizzle, first] = test.param;
  return fmt::format("swizzle{}_from_{}", static_cast<int>(swizzle), first);
}
INSTANTIATE_TEST_SUITE_P(Boxes, TmaStore, testing::Combine(testing::ValuesIn(swizzles), testing::Values(0, 5, 16, 37)),
                         box_name);

// Four CTAs add their boxes, which end outside the tensor, to what is there.
TEST_F(Tma, ReduceAddsFloats) {
  constexpr int width = 64, box_rows = 8, first = 32, ctas = 4;
  gpu::TensorMapSpec spec;
  spec.rank = 5;
  spec.dims = {32, tensor_rows, width / 32, 1, 1};
  const uint64_t row_bytes = uint64_t{4} * width;
  spec.stride_bytes = {row_bytes, 128, tensor_rows * row_bytes, tensor_rows * row_bytes};
  spec.box = {32, box_rows, width / 32, 1, 1};
  spec.dtype = Dtype::f32;
  ASSERT_EQ(gpu::tensor_map_refusal(spec), "");

  std::vector<float> expected(size_t{tensor_rows} * width), boxes;
  std::iota(expected.begin(), expected.end(), 1.f);
  const Buffer<float> target(expected);
  for (int cta = 0; cta < ctas; ++cta)
    for (int panel = 0; panel < width / 32; ++panel)
      for (int row = 0; row < box_rows; ++row)
        for (int column = 0; column < 32; ++column) {
          boxes.push_back(static_cast<float>((cta + 1) * 1000 + panel * 300 + row * 33 + column));
          if (first + row < tensor_rows) expected[(first + row) * width + panel * 32 + column] += boxes.back();
        }
  const Buffer<float> in(boxes);
  Params params = params_for(Operation::reduce_add, spec, target.pointer(), first);
  params.coordinates[3] = params.coordinates[4] = 0;
  params.bytes = box_rows * width * 4;
  params.in = in.pointer<uint8_t>();
  launch(tma_unit(), {ctas, 1, 1}, params);
  finish();
  EXPECT_EQ(difference(target.read(), expected), "");
}

TEST_F(Tma, BulkCopies) {
  std::vector<uint8_t> bytes(8192);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 256);
  const Buffer<uint8_t> in(bytes), loaded(4096, 0xee), stored(bytes.size() + 16, 0xee);
  Params params{};
  params.operation = Operation::bulk_load;
  params.bytes = 4096;
  params.in = in.pointer();
  params.out = loaded.pointer();
  launch(tma_unit(), {1, 1, 1}, params);
  params.operation = Operation::bulk_store;
  params.out = stored.pointer();
  launch(tma_unit(), {2, 1, 1}, params);
  finish();
  EXPECT_EQ(difference(loaded.read(), std::vector<uint8_t>(bytes.begin(), bytes.begin() + 4096)), "");
  bytes.insert(bytes.end(), 16, 0xee);
  EXPECT_EQ(difference(stored.read(), bytes), "");
}

TEST_F(Tma, BulkReduceAddsFloats) {
  constexpr size_t count = 512, ctas = 5;
  std::vector<float> addends(ctas * count), expected(count, 7.f);
  for (size_t i = 0; i < addends.size(); ++i) {
    addends[i] = static_cast<float>(i % 251) - 100;
    expected[i % count] += addends[i];
  }
  const Buffer<float> in(addends), target(std::vector<float>(count, 7.f));
  Params params{};
  params.operation = Operation::bulk_reduce_add;
  params.bytes = count * 4;
  params.in = in.pointer<uint8_t>();
  params.out = target.pointer<uint8_t>();
  launch(tma_unit(), {ctas, 1, 1}, params);
  finish();
  EXPECT_EQ(difference(target.read(), expected), "");
}

}  // namespace
}  // namespace attune::ptx
