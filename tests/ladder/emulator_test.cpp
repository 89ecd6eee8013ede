// The emulator itself: each mistake that it is there to find is planted once, in a kernel of a few lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/ladder/device_words.hpp"
// The device's words come first.
#include "kernels/ladder/base.cuh"

namespace attune::ladder {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void run(unsigned threads, size_t shared_bytes, const std::function<void()>& body) {
  for (const unsigned seed : {0u, 1u, 2u, 3u}) Block::launch({1, 1, 1}, threads, shared_bytes, seed, body);
}

TEST(Emulator, ReportsABarrierThatNotAllReach) {
  EXPECT_THAT(
      [] {
        run(64, 0, [] {
          if (threadIdx.x < 32) return __syncthreads();
          barrier_sync(1, 64);
        });
      },
      ThrowsMessage<std::runtime_error>(HasSubstr("threads wait at a barrier that others have passed by")));
}

TEST(Emulator, ReportsSharedMemoryThatNobodyAskedFor) {
  EXPECT_THAT(
      [] {
        run(32, 1024, [] {
          if (threadIdx.x == 0) shared_memory<char>()[1024] = 1;
        });
      },
      ThrowsMessage<std::runtime_error>(HasSubstr("more shared memory is written than the launch asks for")));
}

// What a reader finds without the barrier, or without the wait for its copies: NaN, in one order at least.
int unfinished_reads(bool barrier, bool wait) {
  int unfinished = 0;
  const std::vector<float> source(64 * 4, 1.f);
  run(64, 64 * 16, [&] {
    const unsigned thread = threadIdx.x, other = 63 - thread;
    float* const shared = shared_memory<float>();
    cp_async_16(shared + thread * 4, source.data() + thread * 4, true);
    cp_async_commit();
    if (wait) cp_async_wait<0>();
    if (barrier) __syncthreads();
    if (std::isnan(shared[other * 4 + 3])) ++unfinished;
  });
  return unfinished;
}

TEST(Emulator, FindsAReadWithoutTheBarrierOrTheWaitBeforeIt) {
  EXPECT_EQ(unfinished_reads(true, true), 0);
  EXPECT_GT(unfinished_reads(false, true), 0);
  EXPECT_GT(unfinished_reads(true, false), 0);
}

TEST(Emulator, WaitsForTheOldestCopiesOnly) {
  const std::vector<float> source(4, 1.f);
  Block::launch({1, 1, 1}, 32, 3 * 16, 1, [&] {
    if (threadIdx.x != 0) return;
    float* const shared = shared_memory<float>();
    for (int i = 0; i < 3; ++i) {
      cp_async_16(shared + 4 * i, source.data(), i != 1);
      cp_async_commit();
    }
    cp_async_wait<1>();
    EXPECT_EQ(shared[0], 1.f);
    EXPECT_EQ(shared[4], 0.f) << "zeros where nothing is read";
    EXPECT_TRUE(std::isnan(shared[8])) << "the youngest may still be on its way";
  });
}

// c = a b by ldmatrix and mma.sync, and by WMMA, against three loops. Both are a rung's way from memory to memory.
template <typename T>
void compare_products() {
  constexpr int rows = 16, columns = 16, depth = 16;
  std::vector<T> a(rows * depth), b(depth * columns);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = T(static_cast<float>(i % 7) - 3);
    b[i] = T(static_cast<float>(i % 11) * .5f - 2);
  }
  std::vector<float> expected(rows * columns), by_mma(expected), by_wmma(expected), by_columns(expected);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j)
      for (int k = 0; k < depth; ++k)
        expected[i * columns + j] += static_cast<float>(a[i * depth + k]) * static_cast<float>(b[k * columns + j]);
  std::vector<T> b_columns(b.size());  // [column][k]
  for (int k = 0; k < depth; ++k)
    for (int j = 0; j < columns; ++j) b_columns[j * depth + k] = b[k * columns + j];
  run(32, 0, [&] {
    const unsigned lane = threadIdx.x;
    unsigned of_a[4], of_b[4], of_columns[4];
    ldmatrix(of_a, &a[lane % 16 * depth + lane / 16 * 8]);
    ldmatrix_transposed(of_b, &b[lane % 16 * columns + lane / 16 * 8]);
    ldmatrix(of_columns, &b_columns[(lane / 16 * 8 + lane % 8) * depth + lane / 8 % 2 * 8]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(of_b[i], of_columns[i]) << "one operand, read in two ways";
    float c[2][4] = {};
    mma_16x8x16<T>(c[0], of_a, of_b[0], of_b[1]);
    mma_16x8x16<T>(c[1], of_a, of_b[2], of_b[3]);
    for (unsigned i = 0; i < 8; ++i)
      by_mma[(lane / 4 + i % 4 / 2 * 8) * columns + i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i / 4][i % 4];

    WmmaA<T> first;
    WmmaB<T, true> second;
    WmmaB<T, false> second_by_columns;
    wmma_load(first, a.data(), depth);
    wmma_load(second, b.data(), columns);
    wmma_load(second_by_columns, b_columns.data(), depth);
    WmmaC sum{}, sum_by_columns{};
    wmma_mma(sum, first, second);
    wmma_mma(sum_by_columns, first, second_by_columns);
    wmma_store(by_wmma.data(), sum, columns);
    wmma_store(by_columns.data(), sum_by_columns, columns);
  });
  EXPECT_EQ(by_mma, expected);
  EXPECT_EQ(by_wmma, expected);
  EXPECT_EQ(by_columns, expected);
}

TEST(Emulator, MultipliesMatricesAsTheInstructionsDo) {
  compare_products<EmulatedHalf>();
  compare_products<EmulatedBfloat16>();
}

TEST(Swizzle, PermutesEachRowAndKeepsRowsThatAreReadTogetherApart) {
  const auto check = [](auto count) {
    constexpr int chunks = count.value;
    std::vector<int> taken(static_cast<size_t>(16 * chunks));
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int row = 0; row < 16; ++row) {
        const int place = swizzled<chunks>(row, chunk) / 8;
        EXPECT_EQ(place / chunks, row);
        ++taken[static_cast<size_t>(place)];
      }
      for (const int first : {0, 8}) {
        std::vector<int> banks(8);
        for (int row = first; row < first + 8; ++row)
          ++banks[static_cast<size_t>(swizzled<chunks>(row, chunk) / 8 % 8)];
        EXPECT_EQ(banks, std::vector<int>(8, 1)) << "eight groups of four banks, each read once";
      }
    }
    EXPECT_EQ(taken, std::vector<int>(taken.size(), 1));
    EXPECT_EQ((swizzled<chunks, false>(3, 1)), (3 * chunks + 1) * 8) << "as it was";
  };
  check(std::integral_constant<int, 4>());
  check(std::integral_constant<int, 8>());
  check(std::integral_constant<int, 16>());
}

}  // namespace
}  // namespace attune::ladder
