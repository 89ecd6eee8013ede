// Generated inputs: reproducible, independent of the storage, hostile where they say so, and poison all around.
#include "lab/check/inputs.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <set>

#include "core/convert.hpp"
#include "core/error.hpp"
#include "lab/check/dtype.hpp"
#include "lab/check/remap.hpp"
#include "tests/lab/lab_fixture.hpp"

namespace attune::lab {
namespace {

class Inputs : public Lab {
 protected:
  // Every element of q (or of k, or v) in use, with its row and channel.
  static void for_each(const Tensors& t, char tensor,
                       const std::function<void(int64_t row, int64_t channel, double)>& f) {
    const Problem& p = t.problem;
    const Buffer& buffer = tensor == 'q' ? t[Operand::q] : tensor == 'k' ? t[Operand::k] : t[Operand::v];
    const attune_strides& strides = tensor == 'q' ? p.q : tensor == 'k' ? p.k : p.v;
    for (int64_t b = 0; b < p.batch; ++b) {
      const Sequence s = t.sequence(b);
      for (int64_t h = 0; h < (tensor == 'q' ? p.heads_q : p.heads_kv); ++h)
        for (int64_t row = 0; row < (tensor == 'q' ? s.seq_q : s.seq_k); ++row)
          for (int64_t c = 0; c < (tensor == 'v' ? p.dim_v : p.dim_qk); ++c) {
            const int64_t first = tensor == 'q' ? s.first_row_q : s.first_row_k;
            f(row, c, load_element(buffer.data(), p.dtype, row_offset(p, strides, b, first, row, h) + c));
          }
    }
  }

  // scale * q.k of batch 0, head 0, in float64.
  static double logit(const Tensors& t, int64_t row, int64_t key) {
    const Problem& p = t.problem;
    double sum = 0;
    for (int64_t c = 0; c < p.dim_qk; ++c)
      sum += static_cast<double>(load_element(t[Operand::q].data(), p.dtype, row * p.q.row + c)) *
             static_cast<double>(load_element(t[Operand::k].data(), p.dtype, key * p.k.row + c));
    return sum * static_cast<double>(p.scale);
  }
};

TEST_F(Inputs, NamesRoundTrip) {
  for (const InputKind kind : all_input_kinds) EXPECT_EQ(input_kind_from(name_of(kind)), kind);
  for (const Storage storage : all_storages) EXPECT_EQ(storage_from(name_of(storage)), storage);
  EXPECT_THROW(input_kind_from("normals"), Error);
  EXPECT_THROW(storage_from(""), Error);
}

TEST_F(Inputs, SameSeedSameBytes) {
  const std::string problem = "fwd b2 h4/2 q33 k65 d24 bf16 sink bias=1hqk mask=b1qk";
  for (const InputKind kind : all_input_kinds) {
    const Tensors a = inputs(problem, kind, 7), b = inputs(problem, kind, 7), c = inputs(problem, kind, 8);
    const auto same = [](const Buffer& x, const Buffer& y) {
      return std::memcmp(x.whole().data(), y.whole().data(), x.whole().size()) == 0;
    };
    EXPECT_TRUE(same(a[Operand::q], b[Operand::q]) && same(a[Operand::k], b[Operand::k]) &&
                same(a[Operand::v], b[Operand::v]) && same(a[Operand::bias], b[Operand::bias]) &&
                same(a[Operand::mask], b[Operand::mask]));
    EXPECT_FALSE(same(a[Operand::v], c[Operand::v])) << name_of(kind);
  }
}

TEST_F(Inputs, StorageDoesNotChangeTheValues) {
  const std::string problem = "fwd b2 h4/2 q9 k11 d5/7 f16 bias=bhqk mask=1h1k var";
  const Tensors dense = inputs(problem);
  for (const Storage storage : {Storage::padded, Storage::odd, Storage::reversed}) {
    const Tensors other = inputs(problem, InputKind::normal, 1, storage);
    for (const char tensor : {'q', 'k', 'v'}) {
      std::vector<double> a, b;
      for_each(dense, tensor, [&](int64_t, int64_t, double x) { a.push_back(x); });
      for_each(other, tensor, [&](int64_t, int64_t, double x) { b.push_back(x); });
      EXPECT_EQ(a, b) << tensor << " " << name_of(storage);
      EXPECT_FALSE(a.empty());
    }
  }
}

TEST_F(Inputs, PaddingTailsAndOutputsArePoison) {
  const Tensors t = inputs("fwd b3 h2/2 q20 k20 d8 f16 used-q used-k", InputKind::normal, 3, Storage::odd);
  const Problem& p = t.problem;
  int64_t unused_keys = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence s = t.sequence(b);
    for (int64_t row = s.seq_k; row < p.seq_k; ++row, ++unused_keys)
      EXPECT_TRUE(std::isnan(load_element(t[Operand::k].data(), p.dtype, row_offset(p, p.k, b, 0, row, 1))));
  }
  EXPECT_GT(unused_keys, 0);
  const int64_t behind_a_row = row_offset(p, p.q, 0, 0, 0, 0) + p.dim_qk;
  EXPECT_TRUE(std::isnan(load_element(t[Operand::q].data(), p.dtype, behind_a_row)));
  for (const std::byte byte : t[Operand::o].whole()) EXPECT_EQ(byte, std::byte{0xff});
  for (const std::byte byte : t[Operand::lse].whole()) EXPECT_EQ(byte, std::byte{0xff});
}

TEST_F(Inputs, PackedLengthsIncludeTheAwkwardOnes) {
  const Tensors t = inputs("fwd b5 h1/1 q40 k60 d8 f16 var");
  std::multiset<int64_t> lengths_q, lengths_k;
  for (int64_t b = 0; b < 5; ++b) {
    lengths_q.insert(t.sequence(b).seq_q);
    lengths_k.insert(t.sequence(b).seq_k);
  }
  for (const auto& [lengths, longest] : {std::pair{lengths_q, 40}, std::pair{lengths_k, 60}}) {
    EXPECT_TRUE(lengths.contains(0));
    EXPECT_TRUE(lengths.contains(1));
    EXPECT_TRUE(lengths.contains(longest));
  }
}

TEST_F(Inputs, OddStorageLeavesElementAlignmentOnly) {
  const Tensors t = inputs("fwd b1 h2/2 q4 k4 d8 f16", InputKind::normal, 1, Storage::odd);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t[Operand::q].data()) % 4, 2u);
  EXPECT_EQ(t.problem.q.head, 8 + 3);
  const Tensors padded = inputs("fwd b1 h2/2 q4 k4 d8 f16", InputKind::normal, 1, Storage::padded);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(padded[Operand::q].data()) % 64, 0u);
  EXPECT_EQ(padded.problem.q.head % 8, 0);
}

TEST_F(Inputs, ReversedStorageRunsBackwardsInTheSameMemory) {
  const std::string problem = "fwd b2 h2/2 q4 k5 d8 f16 bias=1hqk mask=bhqk";
  const Tensors dense = inputs(problem), reversed = inputs(problem, InputKind::normal, 1, Storage::reversed);
  EXPECT_EQ(reversed.problem.bias.key, -1);
  EXPECT_EQ(reversed.problem.bias.batch, 0) << "broadcast";
  EXPECT_EQ(reversed.problem.mask.key, -1);
  for (const attune_strides& strides : {reversed.problem.q, reversed.problem.k, reversed.problem.v, reversed.problem.o})
    EXPECT_TRUE(strides.batch < 0 && strides.row < 0 && strides.head < 0);
  EXPECT_EQ(reversed[Operand::q].whole().size(), dense[Operand::q].whole().size());
  EXPECT_EQ(reversed[Operand::bias].whole().size(), dense[Operand::bias].whole().size());
  const auto* const forwards = dense[Operand::bias].as<uint16_t>();
  const auto* const backwards = reversed[Operand::bias].as<uint16_t>();
  for (int64_t key = 0; key < 5; ++key) EXPECT_EQ(forwards[key], backwards[-key]);
}

TEST_F(Inputs, AnyByteButZeroShowsAKey) {
  const Tensors t = inputs("fwd b1 h1/1 q16 k64 d8 f16 mask=11qk");
  std::set<uint8_t> bytes(t[Operand::mask].as<uint8_t>(), t[Operand::mask].as<uint8_t>() + 16 * 64);
  EXPECT_TRUE(bytes.contains(0));
  EXPECT_GT(bytes.size(), 100u);
}

TEST_F(Inputs, NormalHasTheMomentsOfANormal) {
  const Tensors t = inputs("fwd b1 h4/4 q256 k4 d64 f32");
  double sum = 0, squares = 0, count = 0;
  for_each(t, 'q', [&](int64_t, int64_t, double x) { sum += x, squares += x * x, ++count; });
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.03);
}

TEST_F(Inputs, HeavyTailedHasFarOutliers) {
  const Tensors t = inputs("fwd b1 h4/4 q256 k4 d64 f32", InputKind::heavy_tailed);
  int far = 0;
  for_each(t, 'q', [&](int64_t, int64_t, double x) { far += std::abs(x) > 20 ? 1 : 0; });
  EXPECT_GT(far, 20);  // of 65536; a normal has none beyond 5
}

TEST_F(Inputs, OneChannelIsOutlying) {
  const Tensors t = inputs("fwd b1 h2/2 q4 k64 d16 f16", InputKind::outlier_channel);
  std::vector<double> squares(16);
  for_each(t, 'k', [&](int64_t, int64_t c, double x) { squares[static_cast<size_t>(c)] += x * x; });
  int loud = 0;
  for (const double energy : squares) loud += energy > 1e6 ? 1 : 0;
  EXPECT_EQ(loud, 1);
}

TEST_F(Inputs, EqualLogitsAreEqual) {
  const Tensors t = inputs("fwd b1 h1/1 q8 k40 d32 bf16", InputKind::equal_logits);
  for (int64_t key = 1; key < 40; ++key) EXPECT_EQ(logit(t, 3, key), logit(t, 3, 0));
  EXPECT_NE(logit(t, 3, 0), logit(t, 4, 0));
}

TEST_F(Inputs, FarNegativeLogitsAreFar) {
  for (const char* problem : {"fwd b1 h1/1 q8 k40 d64 f16", "fwd b1 h1/1 q8 k40 d64 bf16 scale-0.5"}) {
    const Tensors t = inputs(problem, InputKind::far_negative);
    for (int64_t key = 0; key < 40; ++key) EXPECT_NEAR(logit(t, 2, key), -1e5, 2e3) << problem;
  }
}

TEST_F(Inputs, RisingMaxRises) {
  for (const char* problem : {"fwd b1 h1/1 q8 k100 d64 f16", "fwd b1 h1/1 q8 k100 d64 f32 scale-0.5"}) {
    const Tensors t = inputs(problem, InputKind::rising_max);
    for (int64_t key = 1; key < 100; ++key) EXPECT_GT(logit(t, 5, key), logit(t, 5, key - 1)) << problem << key;
    EXPECT_GT(logit(t, 5, 99), 30);
  }
}

TEST_F(Inputs, DenormalsAreDenormal) {
  for (const char* problem : {"fwd b1 h1/1 q8 k8 d64 f16", "fwd b1 h1/1 q8 k8 d64 bf16", "fwd b1 h1/1 q8 k8 d64 f32"}) {
    const Tensors t = inputs(problem, InputKind::denormals);
    const double smallest = std::ldexp(1.0, smallest_exponent(t.problem.dtype));
    int nonzero = 0;
    for_each(t, 'v', [&](int64_t, int64_t, double x) {
      EXPECT_LE(std::abs(x), smallest);
      nonzero += x != 0 ? 1 : 0;
    });
    EXPECT_GT(nonzero, 400) << problem;
  }
}

TEST_F(Inputs, ExtremesReachTheEndsOfHalfPrecision) {
  const Tensors t = inputs("fwd b1 h1/1 q8 k8 d64 f16", InputKind::extremes);
  double largest_q = 0, largest_k = 0;
  for_each(t, 'q', [&](int64_t, int64_t, double x) { largest_q = std::max(largest_q, std::abs(x)); });
  for_each(t, 'k', [&](int64_t, int64_t, double x) { largest_k = std::max(largest_k, std::abs(x)); });
  EXPECT_EQ(largest_q, 65504);
  EXPECT_LE(largest_k, 0x1p-14);
}

TEST_F(Inputs, StrayWritesAreFound) {
  Tensors t = inputs("fwd b2 h2/1 q5 k6 d7 f16 var", InputKind::normal, 1, Storage::odd);
  EXPECT_EQ(stray_writes(t), "");
  const Sequence s = t.sequence(0);
  const int64_t element = row_offset(t.problem, t.problem.o, 0, s.first_row_q, 0, 1);
  store_element(t[Operand::o].data(), t.problem.dtype, element, 1.0f);
  EXPECT_EQ(stray_writes(t), "") << "an element of a row in a sequence may be written";
  store_element(t[Operand::o].data(), t.problem.dtype, element + 7, 1.0f);
  EXPECT_NE(stray_writes(t), "") << "the gap behind a row may not";
  t[Operand::o].poison();
  t[Operand::lse].whole()[0] = std::byte{0};
  EXPECT_NE(stray_writes(t).find("lse"), std::string::npos) << "nor the red zone";
}

TEST_F(Inputs, RemappedBackIsTheSame) {
  const Tensors t = inputs("fwd b3 h4/2 q6 k9 d8 f16 sink bias=bhqk mask=b11k", InputKind::normal, 5);
  Remap there = identity_remap(t.problem), back = there;
  there.batches = {1, 2, 0};
  back.batches = {2, 0, 1};
  there.heads_kv = back.heads_kv = {1, 0};
  there.heads_q = back.heads_q = {2, 3, 0, 1};
  std::reverse(there.keys.begin(), there.keys.end());
  back.keys = there.keys;
  const Tensors moved = remapped(t, t.problem, Storage::odd, there);
  const Tensors again = remapped(moved, t.problem, Storage::dense, back);
  for (const auto& [a, b] : {std::pair{&t[Operand::q], &again[Operand::q]},
                             {&t[Operand::k], &again[Operand::k]},
                             {&t[Operand::v], &again[Operand::v]},
                             {&t[Operand::bias], &again[Operand::bias]},
                             {&t[Operand::mask], &again[Operand::mask]},
                             {&t[Operand::sink], &again[Operand::sink]}})
    EXPECT_EQ(std::memcmp(a->data(), b->data(), a->data_bytes()), 0);
  EXPECT_NE(std::memcmp(t[Operand::q].data(), remapped(t, t.problem, Storage::dense, there)[Operand::q].data(),
                        t[Operand::q].data_bytes()),
            0);
}

}  // namespace
}  // namespace attune::lab
