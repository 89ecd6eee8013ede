// What needs neither a GPU nor a driver: architectures, occupancy, the rules of tensor maps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "gpu/device.hpp"
#include "gpu/tensor_map.hpp"

namespace attune::gpu {
namespace {

using testing::HasSubstr;

TEST(Device, ArchitectureIsSpelledAsNvrtcDoes) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a"}) EXPECT_EQ(typical_device(arch).arch(), arch);
  DeviceProperties blackwell;
  blackwell.major = 10;
  EXPECT_EQ(blackwell.arch(), "sm_100a");
  try {
    typical_device("sm_70");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'sm_70': those known are sm_80, sm_86, sm_89, sm_90a"));
  }
}

// Figures of NVIDIA's occupancy calculator.
TEST(Device, BlocksPerSm) {
  const DeviceProperties& h200 = typical_device("sm_90a");
  EXPECT_EQ(blocks_per_sm(h200, 32, 128, 0), 16);
  EXPECT_EQ(blocks_per_sm(h200, 255, 256, 0), 1);
  EXPECT_EQ(blocks_per_sm(h200, 168, 384, 0), 1);
  EXPECT_EQ(blocks_per_sm(h200, 128, 256, 0), 2);
  EXPECT_EQ(blocks_per_sm(h200, 32, 32, 0), 32);
  EXPECT_EQ(blocks_per_sm(h200, 32, 128, 113 * 1024), 2);
  EXPECT_EQ(blocks_per_sm(h200, 32, 128, 227 * 1024), 1);
  const DeviceProperties& a10 = typical_device("sm_86");
  EXPECT_EQ(blocks_per_sm(a10, 32, 128, 0), 12);
  EXPECT_EQ(blocks_per_sm(a10, 32, 32, 0), 16);
  EXPECT_EQ(blocks_per_sm(a10, 32, 128, 99 * 1024), 1);
}

TensorMapSpec good_spec() {
  TensorMapSpec spec;
  spec.rank = 4;
  spec.dims = {64, 512, 8, 2};
  spec.stride_bytes = {128, 65536, 524288};
  spec.box = {64, 128, 1, 1};
  spec.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  return spec;
}

TEST(TensorMap, RulesOfTheHardwareAreKnownBeforehand) {
  EXPECT_EQ(tensor_map_refusal(good_spec()), "");
  const auto refusal = [](auto change) {
    TensorMapSpec spec = good_spec();
    change(spec);
    return tensor_map_refusal(spec);
  };
  EXPECT_THAT(refusal([](auto& s) { s.rank = 6; }), HasSubstr("rank 6"));
  EXPECT_THAT(refusal([](auto& s) { s.stride_bytes[0] = 136; }), HasSubstr("stride 1 is 136 bytes"));
  EXPECT_THAT(refusal([](auto& s) { s.stride_bytes[2] = uint64_t{1} << 40; }), HasSubstr("stride 3"));
  EXPECT_THAT(refusal([](auto& s) { s.box[1] = 257; }), HasSubstr("box 1 is 257"));
  EXPECT_THAT(refusal([](auto& s) { s.box[0] = 72; }), HasSubstr("more than the swizzle's 128"));
  EXPECT_THAT(refusal([](auto& s) { s.box[0] = 4; }), HasSubstr("8 bytes, not a multiple of 16"));
  EXPECT_THAT(refusal([](auto& s) { s.dims[1] = 0; }), HasSubstr("dimension 1 is 0"));
}

}  // namespace
}  // namespace attune::gpu
