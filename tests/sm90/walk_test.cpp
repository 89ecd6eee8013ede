// The blocks that warpgroups of a tile walk, on the host: what the rings of sm90/fwd rely on. The producer brings the
// blocks from the first warpgroup's first to the last warpgroup's last; whoever walks fewer skips the others, and holds
// a skipped block of V for one tile.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/sm90/fwd.hpp"

namespace attune::device::sm90_fwd {
namespace {

struct Shape {
  int rows, keys;
};
constexpr Shape shapes[] = {{1, 1},    {64, 64},   {65, 64},    {129, 700}, {300, 130},
                            {700, 60}, {257, 257}, {1000, 777}, {40, 2000}, {513, 512}};
constexpr int64_t windows[] = {-1, 0, 1, 40, 63, 64, 65, 128, 500};

// Calls check(call, visibility as text) for every window and alignment of every shape.
template <typename Check>
void for_each_call(Check&& check) {
  for (const Shape& shape : shapes)
    for (const Alignment causal : {Alignment::none, Alignment::top_left, Alignment::bottom_right})
      for (const int64_t left : windows)
        for (const int64_t right : windows) {
          Call call{};
          call.seq_q = shape.rows;
          call.band = band_of<int32_t>({causal, left, right}, shape.rows, shape.keys);
          check(call, "causal " + std::to_string(static_cast<int>(causal)) + ", window " + std::to_string(left) + "," +
                          std::to_string(right) + ", " + std::to_string(shape.rows) + " rows, " +
                          std::to_string(shape.keys) + " keys");
        }
}

template <Mask mask>
void expect_sound_walks(const Call& call, const Config& config, const std::string& what) {
  const int tiles = ceil_div(call.seq_q, tile_rows(config)), last = config.warpgroups - 1;
  const int all_blocks = max_of(1, ceil_div(call.band.keys, config.block_n));
  for (Tile tile{0, 0}; tile.m < tiles; ++tile.m) {
    const auto walk = [&](int w) { return tile.walk<mask>(call, config.warpgroups, w, config.block_n); };
    for (int w = 0; w <= last; ++w) {
      const auto own = walk(w);
      ASSERT_GE(own.begin, walk(0).begin) << what;
      ASSERT_LE(own.end, walk(last).end) << what;
      ASSERT_GE(own.begin, 0) << what;
      ASSERT_LE(own.end, all_blocks) << what;
      ASSERT_GE(own.count(), 1) << what << ": a tile walks at least one block";
      ASSERT_LE(own.whole_end, own.end) << what;
      ASSERT_LE(own.begin - walk(0).begin, config.stages_v - 1) << what << ": V would wait for a place for ever";
      ASSERT_LE(walk(last).end - own.end, config.stages_v) << what;
      for (int row = tile.first_row(config.warpgroups, w); row < tile.first_row(config.warpgroups, w + 1); ++row)
        if (row < call.seq_q && call.band.begin(row) < call.band.end(row)) {
          ASSERT_LE(own.begin * config.block_n, call.band.begin(row)) << what << ", row " << row;
          ASSERT_GE(own.end * config.block_n, call.band.end(row)) << what << ", row " << row;
        }
    }
  }
}

TEST(HopperWalks, SuitTheRings) {
  // The tiles of every configuration, with the fewest stages of V that legal() allows.
  constexpr Config configs[] = {{.warpgroups = 1, .block_n = 64},
                                {.warpgroups = 2, .block_n = 64},
                                {.warpgroups = 2, .block_n = 128},
                                {.warpgroups = 3, .block_n = 128},
                                {.warpgroups = 3, .block_n = 64, .stages_v = 3},
                                {.warpgroups = 4, .block_n = 64, .stages_v = 4}};
  for (const Config& config : configs)
    for_each_call([&](const Call& call, const std::string& what) {
      const Mask mask = mask_of(call.band, call.seq_q);
      expect_sound_walks<Mask::ranged>(call, config, what);
      if (mask != Mask::ranged) expect_sound_walks<Mask::causal>(call, config, what);
      if (mask == Mask::full) expect_sound_walks<Mask::full>(call, config, what);
    });
}

TEST(HopperWalks, NeedStagesForWhatIsSkipped) {
  constexpr int plenty = 1 << 20;
  const Variant variant{Dtype::f16, 128, Mask::ranged};
  Config config{.warpgroups = 3, .block_n = 64, .stages_k = 3, .stages_v = 3, .consumer_registers = 160};
  EXPECT_TRUE(legal(variant, config, plenty));
  config.stages_v = 2;
  EXPECT_FALSE(legal(variant, config, plenty));
}

// A mask that a kernel is compiled for changes what it costs, not what is seen.
TEST(HopperWalks, AreTheSameForEveryMaskThatServes) {
  for_each_call([](const Call& call, const std::string& what) {
    const Mask least = mask_of(call.band, call.seq_q);
    for (int first = 0; first < call.seq_q; first += 64) {
      const auto ranged = blocks_of<Mask::ranged>(call, first, first + 63, 64);
      if (ranged.count() == 0) continue;
      const auto same = [&](const auto& other) {
        EXPECT_EQ(other.begin, ranged.begin) << what;
        EXPECT_EQ(other.end, ranged.end) << what;
        EXPECT_EQ(other.whole_end, ranged.whole_end) << what;
      };
      if (least != Mask::ranged) same(blocks_of<Mask::causal>(call, first, first + 63, 64));
      if (least == Mask::full) same(blocks_of<Mask::full>(call, first, first + 63, 64));
    }
  });
}

}  // namespace
}  // namespace attune::device::sm90_fwd
