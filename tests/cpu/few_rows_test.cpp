// Few rows of bfloat16 in pairs, decoding with grouped heads: on the tile unit (src/cpu/level/tile_rows.inl.hpp), the
// real one where there is one and by emulation where there is AVX-512, and in vectors (row_pairs.inl.hpp).
#if defined(__x86_64__)
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/threads.hpp"
#include "lab/check/checker.hpp"
#include "lab/check/executor.hpp"
#include "lab/check/reference.hpp"
#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

class FewRows : public CpuKernel {
 protected:
  // A filled call with an LSE, computed.
  ForwardCall computed(const std::string& text, int threads = 0) {
    ForwardCall call = filled(text);
    run(call, threads);
    return call;
  }
  static ForwardCall filled(const std::string& text, uint32_t without = 0) {
    attune_forward_desc desc = desc_from(parse_problem(text));
    desc.features |= ATTUNE_LSE;
    desc.features &= ~without;
    ForwardCall call(desc);
    Numbers numbers(21);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    return call;
  }
  void run(const ForwardCall& call, int threads = 0) {
    ASSERT_EQ(ForcedContext(GetParam(), threads).forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
  }
  // The bytes of one row of one head of O, of batch 0.
  static std::vector<uint8_t> row_of(const ForwardCall& call, int64_t row, int64_t head) {
    const auto* const o = static_cast<const uint16_t*>(call.o.data()) + row * call.desc.o.row + head * call.desc.o.head;
    const auto* const bytes = reinterpret_cast<const uint8_t*>(o);
    return {bytes, bytes + call.desc.dim_v * 2};
  }
  static void set(TensorMemory& tensor, int64_t offset, float value) {
    store_element(tensor.data(), Dtype::bf16, offset, value);
  }
};
INSTANTIATE_TEST_SUITE_P(Kernels, FewRows,
                         testing::Values(std::string("cpu/amx"), std::string("cpu/amx-emulated"),
                                         std::string("cpu/avx512bf16")),
                         name_of_kernel);

// Weights are rounded there, and nowhere else: the results of float32 in vectors have other bits.
TEST_P(FewRows, GoThere) {
  const bool on_tiles = GetParam() != "cpu/avx512bf16";
  const int least = on_tiles ? 2 : 3, most = on_tiles ? 16 : 8;
  for (const int group : {1, 2, 3, 8, 9, 16}) {
    if (group == 2 && !on_tiles) continue;  // scores in pairs, values not: most bits are the same
    const std::string text = "fwd b1 h" + std::to_string(group) + "/1 q1 k200 d64 bf16";
    ForwardCall pairs = computed(text), vectors = filled(text);
    ASSERT_EQ(ForcedContext("cpu/avx512").forward(vectors.desc, vectors.args()), ATTUNE_OK) << attune_last_error();
    EXPECT_EQ(pairs.o.copy() != vectors.o.copy(), group >= least && group <= most) << text;
  }
}

TEST_P(FewRows, EveryGroupAndDimension) {
  for (const int group : {2, 3, 4, 5, 7, 8, 12, 16})
    for (const char* dims : {"d32", "d64", "d96", "d128", "d256", "d40/72", "d1/512", "d200/16"}) {
      if (small_budget() && group % 4 != 0) continue;
      const std::string text = "fwd b1 h" + std::to_string(2 * group) + "/2 q1 k141 " + dims + " bf16";
      const ForwardCall call = computed(text);
      expect_reference(call, text);
      ASSERT_TRUE(call.o.padding_is_untouched()) << text;
      if (HasFatalFailure()) return;
    }
}

TEST_P(FewRows, EveryLength) {
  for (int keys = 1; keys <= 300; keys += small_budget() ? 23 : 1) {
    const int group = 2 + keys % 15;
    const std::string text =
        "fwd b1 h" + std::to_string(group) + "/1 q1 k" + std::to_string(keys) + " d32" + (keys % 2 == 0 ? "" : "/40");
    expect_reference(computed(text + " bf16"), text);
    if (HasFatalFailure()) return;
  }
}

// Several rows of a sequence, which see different keys, and all that may happen to scores; tasks of several heads;
// split keys.
TEST_P(FewRows, EveryFeature) {
  for (const char* text :
       {"fwd b3 h8/2 q2 k300 d64 bf16 causal-br", "fwd b3 h4/2 q4 k300 d64 bf16 causal-tl",
        "fwd b2 h6/2 q5 k333 d96 bf16 w70,3", "fwd b2 h8/2 q2 k500 d32 bf16 w40,-1 causal-br sink",
        "fwd b2 h4/1 q2 k260 d64 bf16 bias=bhqk cap7", "fwd b2 h4/1 q4 k260 d64 bf16 mask=b1qk bias=1h1k",
        "fwd b3 h12/2 q2 k290 d64/32 bf16 used-k sink", "fwd b3 h8/2 q4 k190 d64 bf16 var",
        "fwd b64 h16/4 q1 k170 d64 bf16 var", "fwd b70 h16/8 q1 k290 d32 bf16 used-k w100,0",
        "fwd b1 h4/1 q1 k3000 d64 bf16", "fwd b1 h32/2 q1 k2500 d128 bf16 sink", "fwd b8 h16/8 q1 k1100 d40 bf16",
        "fwd b35 h21/7 q1 k600 d64 bf16", "fwd b70 h72/9 q1 k90 d32 bf16", "fwd b1 h4/1 q1 k700 d64 bf16 bhsd w300,0",
        "fwd b1 h2/1 q1 k0 d64 bf16 sink", "fwd b2 h8/1 q1 k90 d64 bf16 cap3"}) {
    const ForwardCall call = computed(text);
    expect_reference(call, text);
    ASSERT_TRUE(call.o.padding_is_untouched()) << text;
    if (HasFatalFailure()) return;
  }
}

// Any strides, scales and features.
TEST_P(FewRows, RandomProblemsMatchTheReference) {
  const uint64_t first = 7000, count = static_cast<uint64_t>(budget(300));
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Numbers numbers(seed);
    attune_forward_desc desc = random_desc(numbers);
    while (desc.dtype != ATTUNE_BF16 || desc.heads_q / desc.heads_kv * desc.seq_q > 16 ||
           desc.heads_q / desc.heads_kv * desc.seq_q < 2 || desc.seq_k > 700)
      desc = random_desc(numbers);
    ForwardCall call(desc);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    ASSERT_NO_FATAL_FAILURE(run(call));
    expect_reference(call, "seed " + std::to_string(seed) + " " + to_string(problem_from(desc)));
    ASSERT_TRUE(call.o.padding_is_untouched()) << "seed " << seed;
    if (HasFatalFailure()) return;
  }
}

// docs/accuracy.md, for inputs of every kind.
TEST_P(FewRows, PassTheAccuracyGate) {
  attune_options options{};
  cpu::Threads threads(options);
  const auto executor = lab::make_cpu_executor();
  const auto reference = lab::make_cpu_reference(threads);
  lab::Checker checker(*executor, *reference, threads);
  std::vector<std::string> problems = {
      "fwd b2 h8/2 q1 k777 d128 bf16",        "fwd b1 h16/2 q1 k2100 d64 bf16 sink",
      "fwd b2 h4/2 q1 k300 d96 bf16 cap20",   "fwd b1 h16/1 q1 k1500 d128 bf16",
      "fwd b4 h8/4 q4 k500 d32 bf16 w100,50", "fwd b2 h6/2 q5 k260 d40/72 bf16 bias=bhqk"};
  if (small_budget()) problems.resize(1);
  for (const std::string& problem : problems)
    for (const lab::InputKind input : lab::all_input_kinds) {
      lab::Case c;
      c.problem = problem;
      c.kernel = GetParam();
      c.input = input;
      const lab::Outcome outcome = checker.check(c);
      EXPECT_TRUE(outcome.ok()) << problem << " input " << lab::name_of(input) << ": " << outcome.judgement.failure
                                << outcome.unsupported;
    }
}

TEST_P(FewRows, ThreadsSplitsAndTheLseChangeNoBitOfO) {
  for (const char* text : {"fwd b3 h8/2 q1 k777 d128 bf16", "fwd b1 h4/1 q2 k3000 d64 bf16 causal-br",
                           "fwd b24 h32/8 q1 k600 d72 bf16", "fwd b1 h16/1 q1 k1500 d32 bf16 w900,0"}) {
    const std::vector<uint8_t> one = computed(text, 1).o.copy();
    for (const int threads : {2, 5}) EXPECT_EQ(computed(text, threads).o.copy(), one) << text << " threads " << threads;
    const ForwardCall without = filled(text, ATTUNE_LSE);
    ASSERT_NO_FATAL_FAILURE(run(without));
    EXPECT_EQ(without.o.copy(), one) << text;
  }
}

// A row that turns to huge numbers, or to NaN, moves its own references and no others.
TEST_P(FewRows, RowsDoNotDependOnTheirNeighbours) {
  for (const char* text : {"fwd b1 h4/1 q1 k700 d64 bf16", "fwd b1 h7/1 q1 k300 d64 bf16",
                           "fwd b1 h12/1 q1 k300 d64 bf16", "fwd b1 h3/1 q3 k400 d64 bf16 w100,20"})
    for (const float value : {300.0f, std::nanf("")}) {
      ForwardCall call = computed(text);
      const ForwardCall clean = computed(text);
      for (int64_t i = 0; i < 64; ++i) set(call.q, 1 * call.desc.q.head + i, value);
      ASSERT_NO_FATAL_FAILURE(run(call));
      for (int64_t row = 0; row < call.desc.seq_q; ++row)
        for (int64_t head = 0; head < call.desc.heads_q; ++head)
          EXPECT_EQ(row_of(call, row, head) == row_of(clean, row, head), row != 0 || head != 1)
              << text << " with " << value << ", row " << row << " head " << head;
    }
}

// Rows of a stack see different keys. One that does not see a key is the same whatever it holds; one that does is not.
TEST_P(FewRows, AHiddenKeyHasNoInfluence) {
  constexpr int64_t keys = 300;
  for (const char* text : {"fwd b1 h2/1 q3 k300 d64 bf16 causal-br w90,-1", "fwd b1 h2/1 q8 k300 d40/72 bf16 causal-br",
                           "fwd b1 h2/1 q2 k300 d64/136 bf16 causal-br w90,-1",
                           "fwd b1 h3/1 q2 k300 d64 bf16 mask=11qk", "fwd b1 h4/1 q2 k300 d64 bf16 bias=11qk"}) {
    ForwardCall call = filled(text);
    const Problem problem = problem_from(call.desc);
    const auto hidden = [&](int64_t row, int64_t key) {
      const KeyRange range = visible_keys(problem, row, call.desc.seq_q, keys);
      return key < range.begin || key >= range.end ||
             (problem.has(ATTUNE_MASK) &&
              static_cast<uint8_t*>(call.mask.data())[row * call.desc.mask.query + key] == 0) ||
             (problem.has(ATTUNE_BIAS) &&
              std::isinf(load_element(call.bias.data(), static_cast<Dtype>(call.desc.bias_dtype),
                                      row * call.desc.bias.query + key)));
    };
    const int64_t spoiled[] = {0, 31, 130, 209, 210, 295, 298, 299};
    for (const int64_t key : spoiled) {
      if (problem.has(ATTUNE_MASK)) static_cast<uint8_t*>(call.mask.data())[key] = 0;
      if (problem.has(ATTUNE_BIAS))
        store_element(call.bias.data(), static_cast<Dtype>(call.desc.bias_dtype), key, -infinity);
    }
    ASSERT_NO_FATAL_FAILURE(run(call));
    std::vector<std::vector<uint8_t>> clean;
    for (int64_t row = 0; row < call.desc.seq_q; ++row) clean.push_back(row_of(call, row, 1));
    int changed = 0, same = 0;
    for (const int64_t key : spoiled) {
      const auto spoil = [&](TensorMemory& tensor, int64_t offset) {
        std::vector<uint16_t> before(static_cast<size_t>(tensor.dim()));
        auto* const at = static_cast<uint16_t*>(tensor.data()) + offset;
        std::memcpy(before.data(), at, before.size() * 2);
        for (int64_t i = 0; i < tensor.dim(); ++i)
          set(tensor, offset + i, i % 3 == 0 ? std::nanf("") : i % 3 == 1 ? infinity : 1e-40f);
        return before;
      };
      // A bias of -inf is a term of the score like others: with a NaN in K it is NaN.
      const bool spoils_k = !problem.has(ATTUNE_BIAS);
      std::vector<uint16_t> k;
      if (spoils_k) k = spoil(call.k, key * call.desc.k.row);
      const std::vector<uint16_t> v = spoil(call.v, key * call.desc.v.row);
      ASSERT_NO_FATAL_FAILURE(run(call));
      for (int64_t row = 0; row < call.desc.seq_q; ++row) {
        EXPECT_EQ(row_of(call, row, 1) == clean[static_cast<size_t>(row)], hidden(row, key))
            << text << " row " << row << " key " << key;
        ++(hidden(row, key) ? same : changed);
      }
      std::memcpy(static_cast<uint16_t*>(call.k.data()) + key * call.desc.k.row, k.data(), k.size() * 2);
      std::memcpy(static_cast<uint16_t*>(call.v.data()) + key * call.desc.v.row, v.data(), v.size() * 2);
    }
    EXPECT_GT(same, 2) << text;
    EXPECT_GT(changed, 2) << text;
  }
}

// Values that products of pairs would flush to 0, or multiply by 0 to NaN, in columns of their own: each row has what a
// sum by its definition gives.
TEST_P(FewRows, SpecialValues) {
  for (const int rows : {2, 3, 4, 8, 16})
    for (const int64_t keys : {5, 400}) {
      const int dim = rows == 3 ? 72 : 64;
      const std::string text = "fwd b1 h" + std::to_string(rows) + "/1 q1 k" + std::to_string(keys) + " d32/" +
                               std::to_string(dim) + " bf16";
      ForwardCall call = filled(text);
      const ForwardCall clean = computed(text);
      for (int64_t key = 0; key < keys; ++key) {
        set(call.v, key * call.desc.v.row + 3, 1e-39f * static_cast<float>(key % 5 + 1));  // subnormal
        set(call.v, key * call.desc.v.row + 9, 1e-37f);                                    // below 2^-100
        set(call.v, key * call.desc.v.row + 40, 0.0f);
      }
      set(call.v, 3 * call.desc.v.row + 21, infinity);
      set(call.v, (keys - 1) * call.desc.v.row + 62, std::nanf(""));
      ASSERT_NO_FATAL_FAILURE(run(call));
      const Problem problem = problem_from(call.desc);
      for (int64_t head = 0; head < rows; ++head) {
        const auto o = [&](int64_t column) {
          return load_element(call.o.data(), Dtype::bf16, head * call.desc.o.head + column);
        };
        std::vector<double> expected(static_cast<size_t>(dim));
        cpu::reference_row(problem, operands_of(call.args()), 0, head, 0, expected.data(), nullptr, nullptr);
        EXPECT_NEAR(o(3), expected[3], 0x1p-133) << text << " head " << head;  // the smallest number of all
        EXPECT_NEAR(o(9) / expected[9], 1.0, 0.01) << text << " head " << head;
        EXPECT_EQ(o(40), 0.0f) << text << " head " << head;
        EXPECT_EQ(o(21), infinity) << text << " head " << head;
        EXPECT_TRUE(std::isnan(o(62))) << text << " head " << head;
        for (const int64_t column : {0, 2, 20, 22, 32, 63})
          EXPECT_EQ(o(column), load_element(clean.o.data(), Dtype::bf16, head * call.desc.o.head + column))
              << text << " head " << head << " column " << column;
      }
    }
}

// With one key the output is that row of V: every bit pattern must come through, in every row of a group.
TEST_P(FewRows, EveryValueComesThroughUnchanged) {
  for (const int64_t group : {3, 8, 16}) {
    ForwardCall call(desc_from(parse_problem("fwd b128 h" + std::to_string(group) + "/1 q1 k1 d4/512 bf16")));
    Numbers numbers(1);
    call.fill_values(numbers);
    auto* const v = static_cast<uint16_t*>(call.v.data());
    for (int64_t i = 0; i < 65536; ++i) v[i] = static_cast<uint16_t>(i);
    ASSERT_NO_FATAL_FAILURE(run(call));
    const auto* const o = static_cast<const uint16_t*>(call.o.data());
    for (int64_t i = 0; i < 65536; ++i)
      for (int64_t head = 0; head < group; ++head) {
        const uint16_t got = o[i / 512 * call.desc.o.batch + head * call.desc.o.head + i % 512];
        if (std::isnan(bf16_to_float(static_cast<uint16_t>(i))))
          ASSERT_TRUE(std::isnan(bf16_to_float(got))) << "pattern " << i << " head " << head;
        else
          ASSERT_EQ(got & (i == 0x8000 ? 0x7fff : 0xffff), i == 0x8000 ? 0 : i) << "head " << head;
      }
  }
}

// A key of -inf hides itself, one of +inf has no answer, and a query that is not finite touches no other row.
TEST_P(FewRows, InfiniteKeysAndQueries) {
  for (const float value : {-infinity, infinity}) {
    const char* const text = "fwd b1 h4/1 q1 k70 d64 bf16";
    ForwardCall call = filled(text);
    call.q.for_each([&](const auto&, int64_t offset) {
      for (int64_t i = 0; i < 64; ++i) set(call.q, offset + i, 1.0f);
    });
    set(call.k, 11 * call.desc.k.row + 3, value);
    ASSERT_NO_FATAL_FAILURE(run(call));
    if (value < 0) {
      expect_reference(call, text);
    } else {
      for (int64_t head = 0; head < 4; ++head) {
        EXPECT_TRUE(std::isnan(load_element(call.o.data(), Dtype::bf16, head * call.desc.o.head)));
        EXPECT_TRUE(std::isnan(static_cast<const float*>(call.lse.data())[head * call.desc.lse.head]));
      }
    }
  }
}

// Tensors that end where the process's memory does: nothing past the last element is read.
TEST_P(FewRows, NothingPastTheLastElementIsRead) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const char* text :
       {"fwd b1 h4/1 q1 k33 d64 bf16", "fwd b1 h8/2 q1 k64 d40/24 bf16", "fwd b1 h16/1 q1 k1 d32 bf16",
        "fwd b1 h2/1 q1 k100 d72 bf16", "fwd b1 h8/1 q1 k160 d128 bf16"}) {
    ForwardCall call = filled(text);
    attune_forward_args args = call.args();
    std::vector<std::pair<void*, size_t>> mapped;
    const auto at_the_end = [&](const TensorMemory& tensor) {
      const auto bytes = static_cast<size_t>(tensor.bytes());
      const size_t pages = (bytes + page - 1) / page * page;
      void* const memory = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      EXPECT_NE(memory, MAP_FAILED);
      EXPECT_EQ(mprotect(static_cast<char*>(memory) + pages, page, PROT_NONE), 0);
      mapped.emplace_back(memory, pages + page);
      return std::memcpy(static_cast<char*>(memory) + pages - bytes, tensor.data(), bytes);
    };
    args.q = at_the_end(call.q);
    args.k = at_the_end(call.k);
    args.v = at_the_end(call.v);
    ASSERT_EQ(ForcedContext(GetParam()).forward(call.desc, args), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
    for (const auto& [memory, bytes] : mapped) munmap(memory, bytes);
  }
}

}  // namespace
}  // namespace attune::test
#endif
