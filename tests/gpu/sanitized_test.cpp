// For compute-sanitizer (tests/sanitizer.toml): every promised kernel in every promised configuration, each on problems
// of a few tiles, so that even racecheck is done in a minute. The results are compared with the CPU's only loosely;
// how good they are is the business of the other tests.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "core/convert.hpp"
#include "gpu/kernel.hpp"
#include "gpu/runtime.hpp"
#include "kernels/any/reference.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/check/method.hpp"
#include "lab/pack/manifest.hpp"
#include "tests/support/card.hpp"
#include "tests/support/paths.hpp"

namespace attune::gpu {
namespace {

using lab::DeviceMemory;
using lab::Promise;
using lab::Tensors;
using test::CardCall;

constexpr double tolerance = 0.02, lse_tolerance = 1e-3;

// On a card of three multiprocessors a CTA that walks tiles meets more than one, also in a small problem.
DeviceProperties with_few_multiprocessors(DeviceProperties device) {
  device.sm_count = 3;
  return device;
}

std::vector<Promise> promises_of(std::string_view kernel, const std::string& arch) {
  std::vector<Promise> promises = lab::read_manifest_file(test::repo() + "/kernels/manifest.toml");
  std::erase_if(promises, [&](const Promise& promise) { return promise.kernel != kernel || promise.arch != arch; });
  return promises;
}

// Whether the promised launch is one of those that the promised configuration makes of the problem.
bool runs(const Promise& promise, const Problem& problem, const DeviceProperties& device) {
  const GpuKernel& kernel = find_gpu_kernel(promise.kernel);
  if (std::ranges::count(kernel.space(problem, device), promise.config) == 0) return false;
  const Recipe recipe = kernel.recipe(problem, device, promise.config);
  return std::ranges::any_of(recipe.steps,
                             [&](const Step& step) { return source_of(step.unit) == source_of(promise.unit); });
}

// Problems of the promised dtype, head dim, mask and launch: ragged lengths, grouped heads, rows that see nothing, keys
// that no row sees, no LSE.
std::vector<std::string> problems_of(const Promise& promise) {
  const Problem like = parse_problem(promise.problem);
  std::vector<std::string> problems;
  // Some configurations take short problems only.
  const GpuKernel& kernel = find_gpu_kernel(promise.kernel);
  const DeviceProperties device = with_few_multiprocessors(typical_device("sm_90a"));
  const auto add = [&](const char* shape, const std::string& words) {
    const std::string text = fmt::format("fwd {} d{}/{} {} {}{}", shape, like.dim_qk, like.dim_v, name_of(like.dtype),
                                         words, like.has(ATTUNE_KV_READY) ? " overlap kvready" : "");
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    if (!kernel.refusal_on(problem, device).empty() || !runs(promise, problem, device)) return;
    problems.push_back(text);
  };
  if (promise.kernel == "sm90/fwd_ranged") {
    // What the promise asks for, on shapes of which some have biases and masks that the copy engine takes.
    for (const char* shape : {"b2 h4/2 q150 k208", "b2 h4/2 q70 k333", "b1 h4/1 q1 k1300", "b4 h8/2 q1 k1300"})
      add(shape, lab::own_words_of(like));
  } else if (promise.kernel == "any/fwd") {
    add(like.seq_q == 1 ? "b2 h4/2 q1 k90" : "b1 h2/1 q70 k90", "");
  } else if (like.causal == Causal::none) {
    add("b1 h4/2 q300 k333", "");
    add("b2 h1/1 q65 k64", "nolse");
    add("b1 h4/1 q10 k120", "");
  } else {
    add("b1 h4/2 q300 k200", "causal-br");
    add("b1 h2/2 q150 k333", "causal-br");
    add("b1 h2/1 q200 k333", "causal-tl");
    add("b1 h2/1 q100 k120", "causal-br");
  }
  return problems;
}

Recipe recipe_for(const Promise& promise, Problem problem, const DeviceProperties& device) {
  problem.device_kind = DeviceKind::cuda;
  return find_gpu_kernel(promise.kernel).recipe(problem, with_few_multiprocessors(device), promise.config);
}

TEST(SanitizedProblems, AreComputedByThePromisedKernels) {
  for (const char* kernel : {"sm90/fwd", "sm90/fwd_small", "sm90/fwd_ranged", "any/fwd"}) {
    const std::vector<Promise> promises = promises_of(kernel, "sm_90a");
    EXPECT_FALSE(promises.empty()) << kernel;
    for (const Promise& promise : promises) {
      EXPECT_FALSE(problems_of(promise).empty()) << promise.problem << " with " << promise.config;
      for (const std::string& text : problems_of(promise)) {
        Problem problem = parse_problem(text);
        problem.device_kind = DeviceKind::cuda;
        EXPECT_TRUE(runs(promise, problem, with_few_multiprocessors(typical_device("sm_90a")))) << text;
      }
    }
  }
}

class Sanitized : public test::CardTest {
 protected:
  void SetUp() override {
    CardTest::SetUp();
    if (IsSkipped()) return;
    runtime = std::make_unique<Runtime>();
  }

  void run_promised(const char* kernel) {
    const DeviceProperties& device = runtime->properties(0);
    const std::vector<Promise> promises = promises_of(kernel, device.arch());
    if (promises.empty()) GTEST_SKIP() << "no " << kernel << " is promised for " << device.name;
    for (const Promise& promise : promises)
      for (const std::string& text : problems_of(promise)) {
        std::cout << fmt::format("{} {}: {}\n", promise.kernel, promise.config, text) << std::flush;
        run(promise, text);
        ASSERT_FALSE(HasFailure()) << text << " with " << promise.config;
      }
  }

  void run(const Promise& promise, const std::string& text) {
    const Tensors& expected = right(text);
    CardCall call(*driver, expected, test::Outputs::unwritten);
    const Recipe recipe = recipe_for(promise, call.problem, runtime->properties(0));
    call.use_workspace(*driver, recipe.workspace_bytes);
    for (const Step& step : recipe.steps) {
      alignas(64) std::byte params[largest_params_bytes];
      step.bind(*driver, operands_of(call.args), params);
      Launch(runtime->load(step.unit, 0).function, step.grid, step.unit, step.programmatic)(*driver, params, nullptr);
    }
    driver->check(driver->cuStreamSynchronize(nullptr), text.c_str());
    expect_near(call.result(), expected[Operand::o], call.problem.dtype, tolerance, text + ", o");
    expect_near(call.lse_result(), expected[Operand::lse], Dtype::f32, lse_tolerance, text + ", lse");
  }

  // Inputs of a problem, with the CPU's results in their outputs.
  const Tensors& right(const std::string& text) {
    auto& tensors = right_[text];
    if (!tensors) {
      tensors = std::make_unique<Tensors>(CardCall::inputs(text, 1));
      cpu_executor->run("", *tensors);
    }
    return *tensors;
  }

  static void expect_near(const std::vector<std::byte>& found, const lab::Buffer& expected, Dtype dtype, double within,
                          const std::string& what) {
    ASSERT_EQ(found.size(), expected.data_bytes()) << what;
    const int64_t count = static_cast<int64_t>(found.size()) / bytes_of(dtype);
    for (int64_t i = 0; i < count; ++i) {
      const double x = load_element(found.data(), dtype, i), y = load_element(expected.data(), dtype, i);
      if (x == y) continue;  // also where both are -inf
      ASSERT_LE(std::abs(x - y), within * (1 + std::abs(y))) << what << " element " << i << ": " << x << ", not " << y;
    }
  }

  std::unique_ptr<Runtime> runtime;
  std::unique_ptr<lab::Executor> cpu_executor = lab::make_cpu_executor();

 private:
  std::map<std::string, std::unique_ptr<Tensors>> right_;
};

TEST_F(Sanitized, HopperForward) { run_promised("sm90/fwd"); }
TEST_F(Sanitized, HopperForwardOfSmallProblems) { run_promised("sm90/fwd_small"); }
TEST_F(Sanitized, HopperForwardOfRanges) { run_promised("sm90/fwd_ranged"); }
TEST_F(Sanitized, PlainForward) { run_promised("any/fwd"); }

TEST_F(Sanitized, Reference) {
  const std::vector<Promise> promises = promises_of("any/reference", runtime->properties(0).arch());
  if (promises.empty()) GTEST_SKIP() << "no reference is promised for " << runtime->properties(0).name;
  for (const Promise& promise : promises) {
    const Problem like = parse_problem(promise.problem);
    const std::string text = fmt::format("fwd b2 h2/1 q20 k70 d{} {} causal-br", like.dim_qk, name_of(like.dtype));
    std::cout << "any/reference: " << text << "\n" << std::flush;
    const Tensors& expected = right(text);
    const CardCall call(*driver, expected);
    const any::DeviceReference reference(call.problem, *runtime);
    std::vector<double> o(static_cast<size_t>(call.problem.heads_q * reference.rows() * call.problem.dim_v));
    std::vector<double> lse(static_cast<size_t>(call.problem.heads_q * reference.rows()));
    const DeviceMemory device_o(*driver, o.size() * sizeof(double)), device_lse(*driver, lse.size() * sizeof(double));
    reference.run(operands_of(call.args), device_o.as<double>(), device_lse.as<double>(), nullptr);
    device_o.download(std::as_writable_bytes(std::span(o)));
    device_lse.download(std::as_writable_bytes(std::span(lse)));
    const Problem& problem = expected.problem;
    for (int64_t head = 0; head < problem.heads_q; ++head)
      for (int64_t row = 0; row < problem.batch * problem.seq_q; ++row) {
        const int64_t batch = row / problem.seq_q, at = head * reference.rows() + row;
        const auto offset = [&](const attune_strides& strides) {
          return batch * strides.batch + row % problem.seq_q * strides.row + head * strides.head;
        };
        ASSERT_NEAR(lse[static_cast<size_t>(at)], expected[Operand::lse].as<float>()[offset(problem.lse)],
                    lse_tolerance)
            << text;
        for (int64_t d = 0; d < problem.dim_v; ++d)
          ASSERT_NEAR(o[static_cast<size_t>(at * problem.dim_v + d)],
                      load_element(expected[Operand::o].data(), problem.dtype, offset(problem.o) + d), tolerance)
              << text;
      }
  }
}

TEST_F(Sanitized, PlainBackward) {
  std::set<std::pair<std::string, std::string>> done;  // a promise is one launch of several
  for (const Promise& promise : promises_of("any/bwd", runtime->properties(0).arch())) {
    const Problem like = parse_problem(promise.problem);
    const std::string text = fmt::format("bwd b1 h2/1 q70 k90 d{} {} causal-br dlse {}", like.dim_qk,
                                         name_of(like.dtype), like.has(ATTUNE_BIAS) ? "bias=1hqk dbias" : "sink dsink");
    const std::string& config = promise.config;
    if (!done.emplace(text, config).second) continue;
    std::cout << fmt::format("any/bwd {}: {}\n", config, text) << std::flush;
    const Tensors& expected = right(text);
    Tensors tensors = CardCall::inputs(text, 1);
    lab::make_cuda_executor(0, config)->run("any/bwd", tensors);
    for (const Operand operand : {Operand::dq, Operand::dk, Operand::dv, Operand::dsink, Operand::dbias}) {
      if (!is_written(expected.problem, row_of(operand))) continue;
      const auto elements = tensors[operand].elements();
      const Dtype dtype = operand == Operand::dsink ? Dtype::f32 : expected.problem.dtype;
      expect_near({elements.begin(), elements.end()}, expected[operand], dtype, tolerance,
                  fmt::format("{}, {} of {}", text, row_of(operand).name, config));
    }
  }
  EXPECT_FALSE(done.empty() && runtime->properties(0).arch() == "sm_90a");
}

TEST_F(Sanitized, Merge) {
  const std::string text = "merge p5 b2 h2 q30 d70 bf16 parts-f32";
  Tensors tensors = CardCall::inputs(text, 1), expected = tensors;
  cpu_executor->run("", expected);
  lab::make_cuda_executor()->run("", tensors);
  const auto bytes_of_elements = [](lab::Buffer& buffer) {
    const auto elements = buffer.elements();
    return std::vector(elements.begin(), elements.end());
  };
  expect_near(bytes_of_elements(tensors[Operand::o]), expected[Operand::o], Dtype::bf16, tolerance, text + ", o");
  expect_near(bytes_of_elements(tensors[Operand::lse]), expected[Operand::lse], Dtype::f32, lse_tolerance,
              text + ", lse");
}

}  // namespace
}  // namespace attune::gpu
