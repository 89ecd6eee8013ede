// What the tests of the CPU kernels share: the kernels that can run here, random descriptors, and the comparison with
// the float64 reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attune/attune.h"
#include "core/convert.hpp"
#include "core/problem.hpp"
#include "core/visibility.hpp"
#include "cpu/isa.hpp"
#include "cpu/reference.hpp"
#include "dispatch/context.hpp"
#include "dispatch/kernel.hpp"
#include "tests/support/budget.hpp"
#include "tests/support/forward_call.hpp"

namespace attune::test {

// Every registered kernel of the CPU, whether this machine can run it or not.
inline std::vector<std::string> cpu_kernels() {
  std::vector<std::string> names;
  for (const Kernel* kernel : kernels())
    if (kernel->device_kind() == DeviceKind::cpu) names.emplace_back(kernel->name());
  return names;
}

// A context that may use one kernel only.
class ForcedContext {
 public:
  explicit ForcedContext(const std::string& kernel, int threads = 0, attune_parallel_for hook = nullptr,
                         void* user = nullptr) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    options.parallel_for = hook;
    options.parallel_for_user = user;
    options.kernel = kernel.c_str();
    if (attune_create(&options, &context_) != ATTUNE_OK) ADD_FAILURE() << attune_last_error();
  }
  ~ForcedContext() { attune_destroy(context_); }
  ForcedContext(const ForcedContext&) = delete;
  ForcedContext& operator=(const ForcedContext&) = delete;

  attune_context* get() const { return context_; }

  attune_status forward(const attune_forward_desc& desc, attune_forward_args args) const {
    uint64_t bytes = 0;
    if (const attune_status status = attune_workspace_bytes(context_, &desc, &bytes); status != ATTUNE_OK)
      return status;
    const std::unique_ptr<void, decltype(&std::free)> workspace(
        bytes == 0 ? nullptr : std::aligned_alloc(256, (bytes + 255) / 256 * 256), &std::free);
    args.workspace = workspace.get();
    args.workspace_bytes = bytes;
    return attune_forward(context_, &desc, &args, nullptr);
  }

 private:
  attune_context* context_ = nullptr;
};

// ATTUNE_CPU_ISA as long as this lives; NULL: not set. Then as it was, for the tests after this one.
class LevelCap {
 public:
  explicit LevelCap(const char* name) {
    if (const char* value = std::getenv("ATTUNE_CPU_ISA"); value != nullptr) before_ = value;
    set(name);
  }
  ~LevelCap() { set(before_ ? before_->c_str() : nullptr); }
  LevelCap(const LevelCap&) = delete;
  LevelCap& operator=(const LevelCap&) = delete;

 private:
  static void set(const char* name) {
    if (name == nullptr)
      unsetenv("ATTUNE_CPU_ISA");
    else
      setenv("ATTUNE_CPU_ISA", name, 1);
  }
  std::optional<std::string> before_;
};

// One test per kernel; a level this machine lacks is skipped and says so.
class CpuKernel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const attune_options options{};
    const Context context(options);
    const std::string refusal = find_kernel(GetParam())->refusal(parse_problem("fwd b1 h1/1 q1 k1 d1 f32"), context);
    if (!refusal.empty()) GTEST_SKIP() << GetParam() << ": " << refusal;
  }
};

inline std::string name_of_kernel(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '/' || c == '-') c = '_';
  return name;
}

#define ATTUNE_FOR_EACH_CPU_KERNEL(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite, testing::ValuesIn(::attune::test::cpu_kernels()), \
                           ::attune::test::name_of_kernel)

// How many random problems, given the number for a normal run: sanitizer builds ask for fewer.
inline int budget(int usual) { return small_budget() ? std::max(1, usual / 10) : usual; }

// What a kernel may be off by, relative to the largest |O| a row can have (the largest |v|): the rounding of the
// output, and what float32 scores of this size are off by. The lab's gate is far tighter; this finds what is plainly
// wrong.
inline double tolerance(attune_dtype dtype, double max_abs_score) {
  const double rounding = dtype == ATTUNE_BF16 ? 0x1p-8 : dtype == ATTUNE_F16 ? 0x1p-10 : 0x1p-22;
  return rounding + 0x1p-21 * std::max(1.0, max_abs_score);
}

// Compares o and lse of every stored row with the reference.
inline void expect_reference(const ForwardCall& call, const std::string& what, double largest_v = 2) {
  const Problem problem = problem_from(call.desc);
  const attune_forward_args args = call.args();
  std::vector<double> expected(static_cast<size_t>(problem.dim_v));
  const auto at = [&](const attune_strides& s, int64_t b, int64_t row, int64_t head) {
    return (problem.packed() ? 0 : b * s.batch) + row * s.row + head * s.head;
  };
  for (int64_t b = 0; b < problem.batch; ++b) {
    const Sequence sequence = sequence_of(problem, operands_of(args), b);
    for (int64_t head = 0; head < problem.heads_q; ++head) {
      for (int64_t row = 0; row < sequence.stored_q; ++row) {
        double lse = 0, max_abs_score = 0;
        cpu::reference_row(problem, operands_of(args), b, head, row, expected.data(), &lse, &max_abs_score);
        const double bound = tolerance(call.desc.dtype, max_abs_score) * largest_v;
        const int64_t o_at = at(problem.o, b, sequence.first_row_q + row, head);
        for (int64_t j = 0; j < problem.dim_v; ++j) {
          const auto got = static_cast<double>(load_element(args.o, problem.dtype, o_at + j));
          ASSERT_LE(std::abs(got - expected[static_cast<size_t>(j)]), bound)  // false for NaN
              << what << ": o[" << b << "," << row << "," << head << "," << j << "] is " << got
              << ", the reference says " << expected[static_cast<size_t>(j)];
        }
        if (!problem.has(ATTUNE_LSE)) continue;
        const double got = args.lse[at(problem.lse, b, sequence.first_row_q + row, head)];
        if (std::isinf(lse))
          ASSERT_EQ(got, lse) << what << ": lse[" << b << "," << row << "," << head << "]";
        else
          ASSERT_LE(std::abs(got - lse), 2e-5 * std::max(1.0, std::abs(lse)))
              << what << ": lse[" << b << "," << row << "," << head << "] is " << got << ", the reference says " << lse;
      }
    }
  }
}

// Strides in any order of the dimensions, with gaps.
inline attune_strides random_strides(Numbers& numbers, int64_t batch, int64_t rows, int64_t heads, int64_t dim) {
  attune_strides strides{};
  struct Step {
    int64_t extent;
    int64_t* stride;
  };
  std::array<Step, 3> order{{{heads, &strides.head}, {rows, &strides.row}, {batch, &strides.batch}}};
  std::swap(order[0], order[static_cast<size_t>(numbers.in(0, 2))]);
  std::swap(order[1], order[static_cast<size_t>(numbers.in(1, 2))]);
  int64_t next = dim;
  for (const Step& step : order) {
    next += numbers.in(0, 5);
    *step.stride = numbers.one_in(10) ? -next : next;
    next *= std::max<int64_t>(step.extent, 1);
  }
  return strides;
}

inline attune_score_strides random_score_strides(Numbers& numbers, const attune_forward_desc& d) {
  attune_score_strides strides{};
  int64_t next = 1;
  const auto take = [&](int64_t extent) {
    if (numbers.one_in(3)) return int64_t{0};  // broadcast
    const int64_t stride = next;
    next *= std::max<int64_t>(extent, 1);
    return stride;
  };
  if (numbers.one_in(4)) {
    strides.query = take(d.seq_q);
    strides.key = take(d.seq_k);
  } else {
    strides.key = take(d.seq_k);
    strides.query = take(d.seq_q);
  }
  strides.head = take(d.heads_q);
  strides.batch = take(d.batch);
  return strides;
}

// Any combination of features over small, awkward sizes.
inline attune_forward_desc random_desc(Numbers& numbers) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + numbers.in(0, static_cast<int64_t>(values.size()) - 1));
  };
  attune_forward_desc d{};
  d.struct_size = sizeof d;
  d.dtype = static_cast<attune_dtype>(numbers.in(0, 2));
  d.bias_dtype = numbers.one_in(2) ? d.dtype : attune_dtype{ATTUNE_F32};
  d.causal = static_cast<attune_causal>(numbers.in(0, 2));
  d.batch = numbers.in(1, 3);
  d.heads_kv = numbers.in(1, 3);
  d.heads_q = d.heads_kv * pick({1, 1, 2, 3, 8});
  const bool few_rows = numbers.one_in(4);
  d.seq_q = few_rows ? numbers.in(1, 3) : numbers.in(1, 120);
  d.seq_k = few_rows ? numbers.in(1, 1500) : numbers.in(1, 300);
  d.dim_qk = numbers.one_in(6) ? numbers.in(1, 512) : pick({1, 5, 16, 32, 40, 64, 72, 128});
  d.dim_v = numbers.one_in(2) ? d.dim_qk : numbers.one_in(6) ? numbers.in(1, 512) : pick({1, 7, 16, 33, 64, 80, 128});
  for (uint32_t bit = ATTUNE_SCALE; bit <= ATTUNE_LSE; bit <<= 1)
    if (numbers.one_in(bit == ATTUNE_LSE ? 1 : 4)) d.features |= bit;
  if ((d.features & ATTUNE_SCALE) != 0) d.scale = numbers.one_in(8) ? 0.0f : numbers.real() * 2;
  if ((d.features & ATTUNE_SOFTCAP) != 0) d.softcap = 0.5f + std::abs(numbers.real()) * 10;
  if ((d.features & ATTUNE_WINDOW) != 0) {
    d.window_left = numbers.one_in(3) ? -1 : numbers.in(0, d.seq_k);
    d.window_right = numbers.one_in(3) ? -1 : numbers.in(0, d.seq_k);
  }
  const bool packed = (d.features & ATTUNE_PACKED) != 0;
  if (packed) {
    d.total_q = d.seq_q * d.batch;
    d.total_k = d.seq_k * d.batch;
  }
  const int64_t batch = packed ? 1 : d.batch;
  const int64_t rows_q = packed ? d.total_q : d.seq_q;
  const int64_t rows_k = packed ? d.total_k : d.seq_k;
  d.q = random_strides(numbers, batch, rows_q, d.heads_q, d.dim_qk);
  d.k = random_strides(numbers, batch, rows_k, d.heads_kv, d.dim_qk);
  d.v = random_strides(numbers, batch, rows_k, d.heads_kv, d.dim_v);
  d.o = random_strides(numbers, batch, rows_q, d.heads_q, d.dim_v);
  d.lse = random_strides(numbers, batch, rows_q, d.heads_q, 1);
  if ((d.features & ATTUNE_BIAS) != 0) d.bias = random_score_strides(numbers, d);
  if ((d.features & ATTUNE_MASK) != 0) d.mask = random_score_strides(numbers, d);
  return d;
}

}  // namespace attune::test
