// attune_merge: parts over disjoint keys join to the whole, also in place, with strides, and where parts are empty.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attune/attune.h"
#include "core/convert.hpp"
#include "core/problem.hpp"
#include "tests/support/forward_call.hpp"
#include "tests/support/merge_desc.hpp"

namespace attune::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// A merge over (batch, rows, heads, dim), all tensors contiguous in that order, lse as (batch, heads, rows).
struct Merge {
  Merge(attune_dtype part_dtype, attune_dtype dtype, int64_t parts, int64_t batch, int64_t rows, int64_t heads,
        int64_t dim)
      : desc(dense_merge_desc(part_dtype, dtype, parts, batch, heads, rows, dim)),
        out(static_cast<size_t>(batch * rows * heads * dim * bytes_of(static_cast<Dtype>(dtype)))),
        lse(static_cast<size_t>(batch * rows * heads)) {
    desc.part_o = desc.o = {rows * heads * dim, heads * dim, dim};
    for (int64_t i = 0; i < parts; ++i) {
      part_out.emplace_back(static_cast<size_t>(batch * rows * heads * dim * bytes_of(static_cast<Dtype>(part_dtype))));
      part_lse.emplace_back(lse.size());
    }
  }

  void run() {
    std::vector<const void*> o_pointers;
    std::vector<const float*> lse_pointers;
    for (const auto& part : part_out) o_pointers.push_back(part.data());
    for (const auto& part : part_lse) lse_pointers.push_back(part.data());
    run(o_pointers, lse_pointers, out.data(), lse.data());
  }

  void run(const std::vector<const void*>& o_pointers, const std::vector<const float*>& lse_pointers, void* o,
           float* l) {
    attune_merge_args args{};
    args.struct_size = sizeof args;
    args.part_o = o_pointers.data();
    args.part_lse = lse_pointers.data();
    args.o = o;
    args.lse = l;
    attune_context* context = nullptr;
    ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
    EXPECT_EQ(attune_merge(context, &desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
    attune_destroy(context);
  }

  float part(int64_t i, int64_t index) const {
    return load_element(part_out[static_cast<size_t>(i)].data(), static_cast<Dtype>(desc.part_dtype), index);
  }
  void set_part(int64_t i, int64_t index, float value) {
    store_element(part_out[static_cast<size_t>(i)].data(), static_cast<Dtype>(desc.part_dtype), index, value);
  }
  float result(int64_t index) const { return load_element(out.data(), static_cast<Dtype>(desc.dtype), index); }

  attune_merge_desc desc;
  std::vector<std::vector<uint8_t>> part_out;
  std::vector<std::vector<float>> part_lse;
  std::vector<uint8_t> out;
  std::vector<float> lse;
};

TEST(Merge, IsTheWeightedMeanInFloat64) {
  for (const attune_dtype part_dtype : {ATTUNE_F16, ATTUNE_BF16, ATTUNE_F32})
    for (const attune_dtype dtype : {ATTUNE_F16, ATTUNE_BF16, ATTUNE_F32}) {
      Merge merge(part_dtype, dtype, 5, 2, 9, 3, 20);
      Numbers numbers(1);
      for (int64_t i = 0; i < 5; ++i) {
        for (int64_t at = 0; at < 2 * 9 * 3 * 20; ++at) merge.set_part(i, at, numbers.real());
        for (float& l : merge.part_lse[static_cast<size_t>(i)]) l = numbers.real() * 10;
      }
      merge.run();
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t row = 0; row < 9; ++row)
          for (int64_t head = 0; head < 3; ++head) {
            const size_t at = static_cast<size_t>(b * 27 + head * 9 + row);
            double sum = 0;
            for (const auto& l : merge.part_lse) sum += std::exp(static_cast<double>(l[at]));
            EXPECT_NEAR(merge.lse[at], std::log(sum), 1e-6 * std::max(1.0, std::abs(std::log(sum))));
            for (int64_t j = 0; j < 20; ++j) {
              double wanted = 0;
              for (int64_t i = 0; i < 5; ++i)
                wanted += std::exp(static_cast<double>(merge.part_lse[static_cast<size_t>(i)][at])) / sum *
                          merge.part(i, ((b * 9 + row) * 3 + head) * 20 + j);
              const float got = merge.result(((b * 9 + row) * 3 + head) * 20 + j);
              // Rounded once: what the output dtype makes of the exact value, or its neighbour where that is near a
              // tie.
              const double ulp = dtype == ATTUNE_F16 ? 0x1p-11 : dtype == ATTUNE_BF16 ? 0x1p-8 : 0x1p-24;
              ASSERT_NEAR(got, wanted, std::abs(wanted) * ulp * 1.001 + 1e-8);
            }
          }
    }
}

TEST(Merge, EmptyPartsCountNothingWhateverTheyHold) {
  Merge merge(ATTUNE_F32, ATTUNE_F32, 3, 1, 3, 1, 4);
  for (int64_t at = 0; at < 12; ++at) {
    merge.set_part(0, at, std::nanf(""));
    merge.set_part(1, at, 2.5f);
    merge.set_part(2, at, at < 4 ? 4.5f : infinity);
  }
  merge.part_lse = {{-infinity, -infinity, -infinity}, {1.0f, 7.0f, -infinity}, {1.0f, -infinity, -infinity}};
  merge.run();
  EXPECT_EQ(merge.result(0), 3.5f);
  EXPECT_NEAR(merge.lse[0], 1 + std::log(2.0), 1e-7);
  EXPECT_EQ(merge.result(4), 2.5f);
  EXPECT_EQ(merge.lse[1], 7.0f);
  EXPECT_EQ(merge.result(8), 0.0f);
  EXPECT_EQ(merge.lse[2], -infinity);
}

TEST(Merge, HugeAndInfiniteWeights) {
  Merge merge(ATTUNE_F32, ATTUNE_F32, 2, 1, 3, 1, 1);
  for (int64_t row = 0; row < 3; ++row) {
    merge.set_part(0, row, 1.0f);
    merge.set_part(1, row, 5.0f);
  }
  merge.part_lse = {{1e5f, -1e5f, infinity}, {1e5f, 1e5f, 3.0f}};
  merge.run();
  EXPECT_EQ(merge.result(0), 3.0f);
  EXPECT_NEAR(merge.lse[0], 1e5 + std::log(2.0), 0.01);
  EXPECT_EQ(merge.result(1), 5.0f);
  EXPECT_EQ(merge.result(2), 1.0f);
  EXPECT_EQ(merge.lse[2], infinity);
}

TEST(Merge, AnOutputMayBeAPart) {
  Merge merge(ATTUNE_BF16, ATTUNE_BF16, 3, 2, 100, 2, 33);
  Numbers numbers(4);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t at = 0; at < 2 * 100 * 2 * 33; ++at) merge.set_part(i, at, numbers.real());
    for (float& l : merge.part_lse[static_cast<size_t>(i)]) l = numbers.real();
  }
  merge.run();
  auto& second = merge.part_out[1];
  auto& second_lse = merge.part_lse[1];
  merge.run({merge.part_out[0].data(), second.data(), merge.part_out[2].data()},
            {merge.part_lse[0].data(), second_lse.data(), merge.part_lse[2].data()}, second.data(), second_lse.data());
  EXPECT_EQ(second, merge.out);
  EXPECT_EQ(second_lse, merge.lse);
}

TEST(Merge, StridesMayDifferAndLseMayBeLeftOut) {
  Merge merge(ATTUNE_F32, ATTUNE_F32, 2, 2, 5, 3, 7);
  Numbers numbers(6);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t at = 0; at < 2 * 5 * 3 * 7; ++at) merge.set_part(i, at, numbers.real());
    for (float& l : merge.part_lse[static_cast<size_t>(i)]) l = numbers.real();
  }
  merge.run();
  const std::vector<uint8_t> expected = merge.out;
  // The same into (batch, heads, rows, dim) with gaps, backwards over rows.
  std::vector<float> wide(2 * 3 * 5 * 10, -1.0f);
  merge.desc.o = {150, -10, 50};
  merge.run({merge.part_out[0].data(), merge.part_out[1].data()}, {merge.part_lse[0].data(), merge.part_lse[1].data()},
            wide.data() + 40, nullptr);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t head = 0; head < 3; ++head)
      for (int64_t row = 0; row < 5; ++row)
        for (int64_t j = 0; j < 10; ++j) {
          const float got = wide[static_cast<size_t>(40 + b * 150 + head * 50 - row * 10 + j)];
          EXPECT_EQ(got, j < 7 ? load_element(expected.data(), Dtype::f32, ((b * 5 + row) * 3 + head) * 7 + j) : -1.0f);
        }
}

// Attention over two halves of the keys, merged, is attention over all of them.
TEST(Merge, TwoHalvesMakeTheWhole) {
  attune_context* context = nullptr;
  ASSERT_EQ(attune_create(nullptr, &context), ATTUNE_OK);
  for (const char* text :
       {"fwd b2 h4/2 q60 k250 d64 f32", "fwd b2 h4/2 q60 k250 d64 f16", "fwd b1 h1/1 q1 k999 d32 bf16"}) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    ForwardCall whole(desc);
    Numbers numbers(8);
    whole.fill_values(numbers);
    attune_forward_args args = whole.args();
    ASSERT_EQ(attune_forward(context, &desc, &args, nullptr), ATTUNE_OK) << attune_last_error();
    Merge merge(desc.dtype, desc.dtype, 2, desc.batch, desc.seq_q, desc.heads_q, desc.dim_v);
    for (size_t half = 0; half < 2; ++half) {
      attune_forward_desc part = desc;
      part.seq_k = half == 0 ? desc.seq_k / 3 : desc.seq_k - desc.seq_k / 3;
      const int64_t skipped = half == 0 ? 0 : (desc.seq_k / 3) * bytes_of(static_cast<Dtype>(desc.dtype));
      args.k = static_cast<const char*>(whole.args().k) + skipped * desc.k.row;
      args.v = static_cast<const char*>(whole.args().v) + skipped * desc.v.row;
      part.o = merge.desc.part_o;
      part.lse = merge.desc.part_lse;
      args.o = merge.part_out[half].data();
      args.lse = merge.part_lse[half].data();
      ASSERT_EQ(attune_forward(context, &part, &args, nullptr), ATTUNE_OK) << attune_last_error();
    }
    merge.run();
    const double bound = desc.dtype == ATTUNE_F32 ? 1e-6 : desc.dtype == ATTUNE_F16 ? 2e-3 : 2e-2;
    whole.o.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
      for (int64_t j = 0; j < desc.dim_v; ++j)
        ASSERT_NEAR(merge.result(at[0] * merge.desc.o.batch + at[1] * merge.desc.o.row + at[2] * merge.desc.o.head + j),
                    load_element(whole.o.data(), static_cast<Dtype>(desc.dtype), offset + j), bound)
            << text;
    });
    whole.lse.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
      const size_t index =
          static_cast<size_t>(at[0] * merge.desc.lse.batch + at[1] * merge.desc.lse.row + at[2] * merge.desc.lse.head);
      ASSERT_NEAR(merge.lse[index], static_cast<const float*>(whole.lse.data())[offset], 1e-5) << text;
    });
  }
  attune_destroy(context);
}

}  // namespace
}  // namespace attune::test
