// Memory a call does not have to read may hold anything, and memory it does not own stays as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cpu/support.hpp"

namespace attune::test {
namespace {

using CpuBounds = CpuKernel;
ATTUNE_FOR_EACH_CPU_KERNEL(CpuBounds);

// Fills K and V of one key, in every batch entry and KV head, with NaN and infinities.
void spoil_key(ForwardCall& call, int64_t batch, int64_t key) {
  const auto spoil = [&](TensorMemory& tensor) {
    tensor.for_each([&](const std::array<int64_t, 4>& at, int64_t offset) {
      if (at[0] != batch || at[1] != key) return;
      for (int64_t i = 0; i < tensor.dim(); ++i)
        store_element(tensor.data(), static_cast<Dtype>(call.desc.dtype), offset + i,
                      i % 3 == 0   ? std::nanf("")
                      : i % 3 == 1 ? -INFINITY
                                   : INFINITY);
    });
  };
  spoil(call.k);
  spoil(call.v);
}

// A row's output does not change when a key it does not see turns to NaN, by window, causality, mask or length.
TEST_P(CpuBounds, AHiddenKeyHasNoInfluence) {
  const ForcedContext context(GetParam());
  int compared = 0;
  for (int i = 0; i < budget(100); ++i) {
    Numbers numbers(static_cast<uint64_t>(500 + i));
    attune_forward_desc d = random_desc(numbers);
    d.features &= ~(ATTUNE_PACKED | ATTUNE_USED_Q | ATTUNE_BIAS);
    d.total_q = d.total_k = 0;
    d.batch = 1;
    d.seq_q = std::min<int64_t>(d.seq_q, 60);
    d.seq_k = std::min<int64_t>(d.seq_k, 200);
    d.dim_qk = d.dim_v = 16;
    d.features |= ATTUNE_WINDOW;
    d.window_left = numbers.in(0, 40);
    d.window_right = numbers.in(0, 20);
    for (auto* strides : {&d.q, &d.o}) *strides = {0, d.heads_q * 16, 16};
    for (auto* strides : {&d.k, &d.v}) *strides = {0, d.heads_kv * 16, 16};
    d.lse = {0, 1, d.seq_q};
    d.mask = {0, 0, d.seq_k, 1};
    ForwardCall call(d);
    call.fill_lengths(numbers);
    call.fill_values(numbers);
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> clean = call.o.copy();
    const int64_t key = numbers.in(0, d.seq_k - 1);
    spoil_key(call, 0, key);
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    const std::vector<uint8_t> spoiled = call.o.copy();

    const Problem problem = problem_from(d);
    const Sequence sequence = sequence_of(problem, operands_of(call.args()), 0);
    const auto row_bytes = static_cast<size_t>(16 * bytes_of(problem.dtype));
    for (int64_t row = 0; row < d.seq_q; ++row) {
      const KeyRange range = visible_keys(problem, row, sequence.seq_q, sequence.seq_k);
      const bool masked =
          problem.has(ATTUNE_MASK) && static_cast<const uint8_t*>(call.mask.data())[row * d.mask.query + key] == 0;
      if (key >= range.begin && key < range.end && !masked) continue;
      for (int64_t head = 0; head < d.heads_q; ++head) {
        const size_t at = static_cast<size_t>(row * d.heads_q + head) * row_bytes;
        ASSERT_EQ(std::memcmp(clean.data() + at, spoiled.data() + at, row_bytes), 0)
            << to_string(problem) << " seed " << 500 + i << " row " << row << " head " << head << " key " << key;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, budget(100) * 10);
}

// Sequences end to end: what a neighbour holds, and what lies past the used length, has no influence.
TEST_P(CpuBounds, PackedNeighboursAndUnusedKeysMayBeNan) {
  const ForcedContext context(GetParam());
  for (const char* text : {"fwd b3 h4/2 q50 k60 d24 bf16 causal-br", "fwd b3 h2/2 q2 k200 d24 f32"}) {
    attune_forward_desc d = desc_from(parse_problem(text));
    d.features |= ATTUNE_PACKED | ATTUNE_USED_K | ATTUNE_USED_Q | ATTUNE_LSE;
    d.total_q = 2 * d.seq_q;
    d.total_k = 2 * d.seq_k;
    d.lse = {0, 1, d.total_q};
    ForwardCall call(d);
    Numbers numbers(7);
    const auto q = static_cast<int32_t>(d.seq_q), k = static_cast<int32_t>(d.seq_k);
    call.cu_seqlens_q = {0, q / 2, q, 2 * q};
    call.cu_seqlens_k = {0, k, k + k / 2, 2 * k};
    call.used_q = {q / 2, 1, q};
    call.used_k = {k / 3, k / 2, 1};
    call.fill_values(numbers);  // poison elsewhere
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_OK) << attune_last_error();
    expect_reference(call, text);
  }
}

// Lengths are data and may be nonsense: then nothing is written, nor is anything outside the tensors read (they are
// exact allocations, so AddressSanitizer sees it).
TEST_P(CpuBounds, NonsenseLengthsAreRefused) {
  const ForcedContext context(GetParam());
  attune_forward_desc d = desc_from(parse_problem("fwd b3 h2/1 q20 k30 d16 f16 causal-br"));
  d.features |= ATTUNE_PACKED | ATTUNE_USED_K | ATTUNE_USED_Q | ATTUNE_LSE;
  d.total_q = 45;
  d.total_k = 70;
  d.lse = {0, 1, d.total_q};
  for (int i = 0; i < budget(200); ++i) {
    ForwardCall call(d);
    Numbers numbers(static_cast<uint64_t>(i));
    const auto nonsense = [&](std::vector<int32_t>& lengths) {
      for (int32_t& x : lengths) x = static_cast<int32_t>(numbers.one_in(4) ? numbers.next() : numbers.in(-5, 80));
    };
    nonsense(call.cu_seqlens_q);
    nonsense(call.cu_seqlens_k);
    nonsense(call.used_q);
    nonsense(call.used_k);
    ASSERT_EQ(context.forward(call.desc, call.args()), ATTUNE_INVALID_ARGUMENT);
    ASSERT_THAT(attune_last_error(), testing::ContainsRegex(R"((args.(cu_seqlens|used)_[qk]\[|desc.seq_[qk]).* is )"));
    ASSERT_TRUE(call.outputs_untouched());
  }
}

// Sequences that cannot fill the tensors, whatever their lengths: even a call that would compute nothing is told so,
// for the rows of its output stay as they were.
TEST_P(CpuBounds, BoundsThatLeaveRowsToNobodyAreRefused) {
  const ForcedContext context(GetParam());
  struct Case {
    int64_t batch, seq_q, total_q;
    const char* sentence;
  };
  for (const auto& [batch, seq_q, total_q, sentence] :
       {Case{3, 0, 45, "desc.seq_q is 0; it must be at least 15, since desc.total_q is 45 and desc.batch is 3"},
        Case{2, 0, 1, "desc.seq_q is 0; it must be at least 1,"},
        Case{0, 20, 45, "desc.batch is 0; it must be greater, since desc.total_q is 45"}, Case{0, 0, 0, nullptr},
        Case{3, 0, 0, nullptr}}) {
    attune_forward_desc d = desc_from(parse_problem("fwd b3 h2/1 q20 k30 d16 f16 causal-br var=45,70"));
    d.batch = batch;
    d.seq_q = seq_q;
    d.total_q = total_q;
    d.total_k = batch == 0 ? 0 : 70;
    ForwardCall call(d);
    const attune_status status = context.forward(d, call.args());
    EXPECT_TRUE(call.outputs_untouched());
    if (sentence == nullptr)
      EXPECT_EQ(status, ATTUNE_OK) << attune_last_error();
    else
      EXPECT_THAT(attune_last_error(), testing::HasSubstr(sentence));
    EXPECT_EQ(status == ATTUNE_INVALID_ARGUMENT, sentence != nullptr);
  }
}

// Offsets beyond 2^31 elements, in memory that exists only where it is touched.
TEST_P(CpuBounds, OffsetsBeyond31Bits) {
  constexpr int64_t stride = (int64_t{1} << 31) + 12345;
  constexpr size_t bytes = size_t{5} * static_cast<size_t>(stride) * 2;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no " << bytes << " bytes of address space";
  auto* const base = static_cast<uint16_t*>(memory);
  for (const int dimension : {0, 1, 2}) {  // batch, row, head
    attune_forward_desc d{};
    d.struct_size = sizeof d;
    d.dtype = ATTUNE_F16;
    d.features = ATTUNE_MASK;
    d.batch = dimension == 0 ? 2 : 1;
    d.heads_q = d.heads_kv = dimension == 2 ? 2 : 1;
    d.seq_q = d.seq_k = dimension == 1 ? 2 : 1;
    d.dim_qk = d.dim_v = 20;
    for (auto* strides : {&d.q, &d.k, &d.v, &d.o}) *strides = {stride, stride, stride};
    d.mask = {2 * stride, 2 * stride, 2 * stride, 2 * stride};
    attune_forward_args args{};
    args.struct_size = sizeof args;
    uint16_t* const q = base;
    uint16_t* const k = base + 100;
    uint16_t* const v = base + 200;
    uint16_t* const o = base + 300;
    auto* const mask = reinterpret_cast<uint8_t*>(base + 400);
    args.q = q;
    args.k = k;
    args.v = v;
    args.o = o;
    args.mask = mask;
    Numbers numbers(3);
    for (const int64_t at : {int64_t{0}, stride})
      for (int64_t i = 0; i < 20; ++i)
        for (uint16_t* tensor : {q, k, v}) tensor[at + i] = float_to_f16(numbers.real());
    for (int64_t i = 0; i <= (dimension == 1 ? 2 : 1); ++i) mask[2 * stride * i] = 1;
    ASSERT_EQ(ForcedContext(GetParam()).forward(d, args), ATTUNE_OK) << attune_last_error();
    const Problem problem = problem_from(d);
    std::vector<double> expected(20);
    for (const int64_t index : {0, 1}) {
      cpu::reference_row(problem, operands_of(args), dimension == 0 ? index : 0, dimension == 2 ? index : 0,
                         dimension == 1 ? index : 0, expected.data(), nullptr, nullptr);
      for (int64_t i = 0; i < 20; ++i)
        EXPECT_NEAR(f16_to_float(o[index * stride + i]), expected[static_cast<size_t>(i)], 4e-3)
            << "dimension " << dimension << " index " << index;
    }
    ASSERT_EQ(madvise(memory, bytes, MADV_DONTNEED), 0);
  }
  munmap(memory, bytes);
}

}  // namespace
}  // namespace attune::test
