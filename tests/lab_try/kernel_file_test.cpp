// What a kernel file says about its launch: read, judged, and turned into numbers for a problem.
#include "lab/try/kernel_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.hpp"
#include "lab/try/bounds.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

std::string complaint(const std::string& text) {
  try {
    parse_kernel_file("mine.cu", text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string complaint_of(std::string_view expression) {
  try {
    evaluate(expression, {{"q", 100}, {"d", 64}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A right comment, with one line in place of another or added.
std::string header(const std::string& key = "", const std::string& line = "") {
  std::string text = "#include <cuda_fp16.h>\n// attune kernel\n";
  bool placed = line.empty();
  for (const char* each :
       {"entry: attention", "threads: 64", "grid: ceil_div(q, 64), h, b",
        "arguments: Q, K, V, O, LSE, long q * h, k, scale, causal", "supports: f16, causal, d <= 128"}) {
    const bool here = std::string(each).starts_with(key + ":");
    placed |= here;
    text += fmt::format("// {}\n", here ? line : each);
  }
  if (!placed) text += fmt::format("// {}\n", line);
  return text + "__global__ void attention() {}\n";
}

TEST(Expression, ComputesAsCDoes) {
  const Variables variables{{"q", 100}, {"d", 64}, {"hkv", 2}};
  EXPECT_EQ(evaluate("(q + 63) / 64", variables), 2);
  EXPECT_EQ(evaluate("ceil_div(q, 64) * hkv - 1", variables), 3);
  EXPECT_EQ(evaluate("2 + 3 * 4 % 5", variables), 4);
  EXPECT_EQ(evaluate("q - 1 - 2", variables), 97) << "from the left";
  EXPECT_EQ(evaluate("d == 64 || d == 128 && q < 10", variables), 1);
  EXPECT_EQ(evaluate("!(d <= 64)", variables), 0);
  EXPECT_EQ(evaluate("min(q, max(d, 7)) - -1", variables), 65);
  EXPECT_EQ(evaluate("-7 / 2", variables), -3);
}

TEST(Expression, SaysWhereItIsNone) {
  EXPECT_THAT(complaint_of("(q + 63"), HasSubstr("'(q + 63', at character 8: ')' is expected"));
  EXPECT_THAT(complaint_of("q + rows"), HasSubstr("at character 5: there is no 'rows'; d, q, min, max and ceil_div"));
  EXPECT_THAT(complaint_of("q +"), HasSubstr("a number, a name or a bracket is missing"));
  EXPECT_THAT(complaint_of("q d"), HasSubstr("'d' is not expected"));
  EXPECT_THAT(complaint_of("q / (d - 64)"), HasSubstr("a division by 0"));
  EXPECT_THAT(complaint_of("9223372036854775807 + q"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(complaint_of("99999999999999999999"), HasSubstr("does not fit into 64 bits"));
  EXPECT_THAT(complaint_of(std::string(100, '(')), HasSubstr("too many brackets and signs"));
  EXPECT_THAT(complaint_of(std::string(1 << 20, '-')), HasSubstr("too many"));
}

TEST(KernelFile, BecomesALaunchOfAProblem) {
  const KernelFile file = parse_kernel_file("mine.cu", header("", "shared: 2 * 64 * d * 2"));
  const Problem problem = parse_problem("fwd b2 h4/4 q100 k77 d64 f16 causal-br");
  EXPECT_EQ(refusal_of(file, problem), "");
  const KernelLaunch launch = launch_of(file, problem);
  EXPECT_EQ(launch.grid, (std::array<uint32_t, 3>{2, 4, 2}));
  EXPECT_EQ(launch.threads, 64u);
  EXPECT_EQ(launch.shared_bytes, 16384u);

  Operands operands;
  int o = 0, lse = 0;
  operands.set(Operand::o, &o);
  const std::vector<KernelArgument> arguments = arguments_of(file, problem, operands, &lse);
  ASSERT_EQ(arguments.size(), 9u);
  const auto pointer = [&](size_t i) {
    void* value = nullptr;
    std::memcpy(&value, arguments[i].bytes.data(), sizeof value);
    return value;
  };
  EXPECT_EQ(pointer(3), &o);
  EXPECT_EQ(pointer(4), &lse);
  EXPECT_EQ(arguments[5].size, 8u) << "long";
  int64_t product = 0;
  std::memcpy(&product, arguments[5].bytes.data(), 8);
  EXPECT_EQ(product, 400);
  float scale = 0;
  std::memcpy(&scale, arguments[7].bytes.data(), 4);
  EXPECT_FLOAT_EQ(scale, 0.125f);
}

TEST(KernelFile, RefusesWhatItDoesNotSupport) {
  const KernelFile file = parse_kernel_file("mine.cu", header());
  const auto refusal = [&](const char* problem) { return refusal_of(file, parse_problem(problem)); };
  EXPECT_EQ(refusal("fwd b1 h2/2 q8 k8 d64 bf16"), "it does not support bf16");
  EXPECT_EQ(refusal("fwd b1 h2/2 q8 k8 d192 f16"), "it supports only d <= 128");
  EXPECT_EQ(refusal("fwd b1 h4/2 q8 k8 d64 f16"), "it does not support groups");
  EXPECT_EQ(refusal("fwd b1 h2/2 q8 k8 d64 f16 bhsd"), "its tensors are dense and bshd");
  EXPECT_THAT(refusal("fwd b1 h2/2 q8 k8 d64 f16 w4,4"), HasSubstr("no features but"));
  const KernelFile bare = parse_kernel_file("mine.cu", header("arguments", "arguments: Q, K, V, O"));
  EXPECT_THAT(refusal_of(bare, parse_problem("fwd b1 h2/2 q8 k8 d64 f16")), HasSubstr("nolse"));
  EXPECT_EQ(refusal_of(bare, parse_problem("fwd b1 h2/2 q8 k8 d64 f16 nolse")), "");
  const KernelFile first = parse_kernel_file("mine.cu", header("", "layout: bhsd"));
  EXPECT_EQ(refusal_of(first, parse_problem("fwd b1 h2/2 q8 k8 d64 f16 bhsd")), "");
}

TEST(KernelFile, ErrorsNameFileLineAndWhatIsAllowed) {
  EXPECT_THAT(complaint("__global__ void f() {}\n"), HasSubstr("'// attune kernel', which begins the comment"));
  EXPECT_THAT(complaint(header("entry", "entry: 3d")), HasSubstr("mine.cu:3: entry: '3d' is no name of a function"));
  EXPECT_THAT(complaint(header("threads", "threads: 6 4")), HasSubstr("mine.cu:4: threads: '6 4', at character 3"));
  EXPECT_THAT(complaint(header("grid", "grid: 1, 1, 1, 1")), HasSubstr("4 extents; 1 to 3 are allowed"));
  EXPECT_THAT(complaint(header("arguments", "arguments: Q, K, V")), HasSubstr("mine.cu:6: arguments: O is missing"));
  EXPECT_THAT(complaint(header("arguments", "arguments: Q, K, V, O, rows")), HasSubstr("there is no 'rows'"));
  EXPECT_THAT(complaint(header("supports", "supports: causal")), HasSubstr("an element type is missing"));
  EXPECT_THAT(complaint(header("supports", "supports: f16, masks")), HasSubstr("or a condition such as d <= 128"));
  EXPECT_THAT(complaint(header("", "layout: sbhd")), HasSubstr("bshd or bhsd is allowed"));
  EXPECT_THAT(complaint(header("", "defines: 3 = d")), HasSubstr("NAME = expression is allowed"));
  EXPECT_THAT(complaint(header("", "colour: red")), HasSubstr("mine.cu:8: colour: there is no such key"));
  EXPECT_THAT(complaint(header("", "threads: 32")), HasSubstr("it is there twice"));
  EXPECT_THAT(complaint(header("", "nothing")), HasSubstr("is no line of the form 'key: value'"));
  EXPECT_THAT(complaint("// attune kernel\n// entry: f\n"), HasSubstr("threads: this line is missing"));
  std::string many = "// attune kernel\n";
  for (int i = 0; i < 11; ++i) many += fmt::format("// key{}: 1\n", i);
  EXPECT_THAT(complaint(many), HasSubstr("mine.cu:12: the comment has more than 10 lines"));
  EXPECT_THAT([] { read_kernel_file("/nowhere.cu"); },
              testing::ThrowsMessage<Error>(HasSubstr("/nowhere.cu: cannot be read")));
}

TEST(KernelFile, LaunchesBeyondTheLimitsAreErrors) {
  const auto thrown = [](const std::string& key, const std::string& line) {
    const KernelFile file = parse_kernel_file("mine.cu", header(key, line));
    return [file] { launch_of(file, parse_problem("fwd b1 h2/2 q8 k8 d64 f16")); };
  };
  EXPECT_THAT(thrown("threads", "threads: q * 200"),
              testing::ThrowsMessage<Error>(HasSubstr("threads: 'q * 200' is 1600; 1 to 1024 is allowed")));
  EXPECT_THAT(thrown("grid", "grid: 1, q * 10000"), testing::ThrowsMessage<Error>(HasSubstr("is 80000; 1 to 65535")));
}

TEST(Bounds, TheOneThatTakesLongestIsTheNearest) {
  const auto ceiling = [](const char* name, double value, double clock_hz = 0) {
    Ceiling made;
    made.name = name;
    made.value = value;
    made.clock_hz = clock_hz;
    return made;
  };
  const std::vector<Ceiling> card{ceiling("matmul", 800), ceiling("read", 4000), ceiling("exp2", 16, 1.7e9)};
  const Problem prefill = parse_problem("fwd b4 h16/16 q4096 k4096 d128 bf16");
  const std::vector<Bound> bounds = bounds_of(prefill, card, 132);
  ASSERT_EQ(bounds.size(), 3u);
  EXPECT_EQ(bounds[0].name, "matmul");
  EXPECT_NEAR(bounds[0].seconds, 4.0 * 4 * 16 * 4096 * 4096 * 128 / 800e12, 1e-9);
  EXPECT_EQ(bounds[1].name, "exp");
  EXPECT_NEAR(bounds[1].seconds, 4.0 * 16 * 4096 * 4096 / (16 * 132 * 1.7e9), 1e-9);
  EXPECT_THAT(bounds_text(bounds, 2 * bounds[0].seconds), testing::StartsWith("matmul 50.0 %, exp "));
  EXPECT_THAT(bounds_text(bounds, 1), testing::EndsWith("matmul is the nearest bound"));
  EXPECT_EQ(bounds_of(parse_problem("fwd b8 h8/8 q1 k8192 d128 bf16"), card, 132)[0].name, "memory");
  EXPECT_EQ(bounds_text({}, 1), "");
}

}  // namespace
}  // namespace attune::lab
