// The rules of kernels/attention against brute force: which keys a row sees, which blocks a tile walks, and which of
// them every row sees whole. The sentence of the header is taken literally here.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/visibility.hpp"
#include "kernels/attention/dense_keys.cuh"
#include "kernels/attention/key_blocks.cuh"
#include "kernels/attention/sequence.cuh"

namespace attune::device {
namespace {

constexpr int64_t widest = int64_t{1} << 62;

bool sees(const Visibility& visibility, int64_t row, int64_t key, int64_t rows, int64_t keys) {
  const int64_t diagonal = visibility.causal == Alignment::top_left ? row : row + keys - rows;
  if (key < 0 || key >= keys) return false;
  if (visibility.causal != Alignment::none && key > diagonal) return false;
  if (visibility.window_left >= 0 && key < diagonal - visibility.window_left) return false;
  return visibility.window_right < 0 || visibility.window_right == widest || key <= diagonal + visibility.window_right;
}

// Calls check(visibility, rows, keys) for every mask on every small shape.
template <typename Check>
void for_each_shape(int64_t most_rows, int64_t most_keys, const std::vector<int64_t>& windows, Check&& check) {
  for (const Alignment causal : {Alignment::none, Alignment::top_left, Alignment::bottom_right})
    for (const int64_t left : windows)
      for (const int64_t right : windows)
        for (int64_t rows = 1; rows <= most_rows; ++rows)
          for (int64_t keys = 0; keys <= most_keys; ++keys) check(Visibility{causal, left, right}, rows, keys);
}

std::string named(const Visibility& v, int64_t rows, int64_t keys) {
  return "causal " + std::to_string(static_cast<int>(v.causal)) + ", window " + std::to_string(v.window_left) + "," +
         std::to_string(v.window_right) + ", " + std::to_string(rows) + " rows, " + std::to_string(keys) + " keys";
}

TEST(KeyRange, EveryRowOfEveryMaskOnEverySmallShape) {
  for_each_shape(8, 9, {-1, 0, 1, 2, 5, 20, widest}, [](const Visibility& visibility, int64_t rows, int64_t keys) {
    const auto wide = band_of<int64_t>(visibility, rows, keys);
    const auto narrow = band_of<int32_t>(visibility, rows, keys);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t key = -1; key <= keys; ++key) {
        const bool seen = sees(visibility, row, key, rows, keys);
        const auto row32 = static_cast<int32_t>(row);
        ASSERT_EQ(key >= wide.begin(row) && key < wide.end(row), seen)
            << named(visibility, rows, keys) << ", row " << row << ", key " << key;
        ASSERT_EQ(key >= narrow.begin(row32) && key < narrow.end(row32), seen)
            << named(visibility, rows, keys) << ", row " << row << ", key " << key;
      }
  });
}

TEST(KeyBlocks, EveryTileOfEveryMaskOnEverySmallShape) {
  for_each_shape(6, 9, {-1, 0, 1, 3, widest}, [](const Visibility& visibility, int64_t rows, int64_t keys) {
    const auto band = band_of<int32_t>(visibility, rows, keys);
    for (int first = 0; first < rows; ++first)
      for (int last = first; last < rows; ++last)
        for (const int block_keys : {1, 2, 3, 4, 16}) {
          const KeyBlocks<int32_t> blocks = key_blocks<int32_t>(band, first, last, block_keys);
          ASSERT_LE(blocks.begin, blocks.whole_begin);
          ASSERT_LE(blocks.whole_begin, blocks.whole_end);
          ASSERT_LE(blocks.whole_end, blocks.end);
          for (int block = 0; block <= (keys + block_keys - 1) / block_keys; ++block) {
            bool some = false, whole = true;
            for (int row = first; row <= last; ++row)
              for (int key = block * block_keys; key < (block + 1) * block_keys; ++key) {
                const bool seen = sees(visibility, row, key, rows, keys);
                some |= seen;
                whole &= seen;
              }
            ASSERT_EQ(block >= blocks.begin && block < blocks.end, some)
                << named(visibility, rows, keys) << ", tile " << first << ".." << last << ", block " << block << " of "
                << block_keys;
            ASSERT_EQ(blocks.is_whole(block), whole) << named(visibility, rows, keys) << ", tile " << first << ".."
                                                     << last << ", block " << block << " of " << block_keys;
          }
        }
  });
}

// Lengths and windows as large as the interface allows must not wrap.
TEST(KeyRange, HugeLengthsDoNotOverflow) {
  constexpr int64_t rows = max_extent, keys = max_extent - 5, huge = std::numeric_limits<int64_t>::max();
  const auto causal = band_of<int64_t>({Alignment::bottom_right, huge, huge}, rows, keys);
  EXPECT_EQ(causal.begin(rows - 1), 0);
  EXPECT_EQ(causal.end(rows - 1), keys);
  EXPECT_EQ(causal.end(4), 0) << "5 rows more than keys: the first 5 see nothing";
  EXPECT_EQ(causal.end(5), 1);
  constexpr int32_t most = std::numeric_limits<int32_t>::max() / 2;
  const auto narrow = band_of<int32_t>({Alignment::top_left, 3, huge}, most, most);
  EXPECT_EQ(narrow.begin(most - 1), most - 4);
  EXPECT_EQ(narrow.end(most - 1), most);
}

// The rule that references use was written apart on purpose; here both are held against each other.
TEST(KeyRange, AgreesWithTheRuleOfTheReferences) {
  for_each_shape(7, 8, {-1, 0, 2, 6}, [](const Visibility& visibility, int64_t rows, int64_t keys) {
    Problem problem;
    problem.causal = static_cast<Causal>(visibility.causal);
    problem.window_left = visibility.window_left;
    problem.window_right = visibility.window_right;
    const auto band = band_of<int64_t>(visibility, rows, keys);
    for (int64_t row = 0; row < rows; ++row) {
      const attune::KeyRange range = visible_keys(problem, row, rows, keys);
      if (range.begin < range.end) {
        ASSERT_EQ(band.begin(row), range.begin) << named(visibility, rows, keys);
        ASSERT_EQ(band.end(row), range.end) << named(visibility, rows, keys);
      } else {
        ASSERT_LE(band.end(row), band.begin(row)) << named(visibility, rows, keys);
      }
    }
  });
}

TEST(DenseKeys, AgreeWithTheBandOnEverySmallShape) {
  for_each_shape(7, 8, {-1}, [](const Visibility& visibility, int64_t rows, int64_t keys) {
    const auto band = band_of<int32_t>(visibility, rows, keys);
    const bool causal = visibility.causal != Alignment::none;
    const DenseKeys dense{static_cast<int32_t>(rows), band.keys, band.upper - 1};
    for (int row = 0; row < rows; ++row) {
      const int limit = causal ? dense.limit<true>(row) : dense.limit<false>(row);
      ASSERT_EQ(max_of(limit, 0), band.end(row)) << named(visibility, rows, keys) << ", row " << row;
    }
    // The last tile may end past the last row.
    for (int row_end = 1; row_end <= rows + 3; ++row_end) {
      const int seen = causal ? dense.seen_before<true>(row_end) : dense.seen_before<false>(row_end);
      ASSERT_EQ(seen, band.end(min_of(row_end, static_cast<int>(rows)) - 1)) << named(visibility, rows, keys);
    }
  });
}

TEST(SequenceRows, AgreeWithTheRuleOfTheReferencesOnAnyLengths) {
  constexpr int32_t low = std::numeric_limits<int32_t>::min(), high = std::numeric_limits<int32_t>::max();
  const std::vector<int32_t> wild{low, -1, 0, 2, 5, high};
  Problem problem;
  problem.batch = 1;
  problem.seq_q = 4;
  problem.seq_k = 3;
  problem.total_q = 5;
  problem.total_k = 6;
  const auto compare = [&](const attune_forward_args& args) {
    const bool packed = problem.packed();
    const SequenceRows rows = sequence_rows(
        {packed ? args.cu_seqlens_q : nullptr, packed ? args.cu_seqlens_k : nullptr,
         problem.has(ATTUNE_USED_Q) ? args.used_q : nullptr, problem.has(ATTUNE_USED_K) ? args.used_k : nullptr,
         problem.seq_q, problem.seq_k, problem.total_q, problem.total_k},
        0);
    const Sequence expected = sequence_of(problem, operands_of(args), 0);
    ASSERT_EQ(rows.first_row_q, expected.first_row_q);
    ASSERT_EQ(rows.first_row_k, expected.first_row_k);
    ASSERT_EQ(rows.seq_q, expected.seq_q);
    ASSERT_EQ(rows.seq_k, expected.seq_k);
    ASSERT_EQ(rows.stored_q, expected.stored_q);
  };
  for (const uint32_t features : {0u, ATTUNE_USED_Q | ATTUNE_USED_K, ATTUNE_PACKED | 0u, ATTUNE_PACKED | ATTUNE_USED_Q,
                                  ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_USED_K}) {
    problem.features = features;
    for (const int32_t begin : wild)
      for (const int32_t end : wild)
        for (const int32_t used : wild) {
          const int32_t cu_q[] = {begin, end}, cu_k[] = {end, begin};
          attune_forward_args args{};
          args.cu_seqlens_q = cu_q;
          args.cu_seqlens_k = cu_k;
          args.used_q = args.used_k = &used;
          compare(args);
        }
  }
}

}  // namespace
}  // namespace attune::device
