// Which ceiling a row is judged by, with ceilings that are made up.
#include "lab/measure/share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attune::lab {
namespace {

using testing::ElementsAre;

// 2000 GFLOP/s on tiles, 200 in registers, 20 GB/s.
class Shares : public testing::Test {
 protected:
  Ceiling probe(std::string_view name) {
    probed_.emplace_back(name);
    Ceiling ceiling;
    ceiling.name = name;
    ceiling.about = "made up";
    ceiling.unit = name == "read" ? "GB/s" : name == "matmul" ? "TFLOP/s" : "GFLOP/s";
    if (name == "amx" && !amx_) {
      ceiling.absence = "no tiles";
    } else {
      ceiling.value = name == "amx" ? 2000 : name == "fma" ? 200 : name == "read" ? 20 : 500;
    }
    return ceiling;
  }

  Bound bound(const char* problem, std::string_view kernel) {
    return bound_of(parse_problem(problem), kernel, ceilings_);
  }

  bool amx_ = true;
  std::vector<std::string> probed_;
  ProbedCeilings ceilings_{[this](std::string_view name) { return probe(name); }};
};

constexpr const char* long_rows = "fwd b1 h8/8 q1024 k1024 d128 bf16";  // 4.3 GFLOP, 8.4 MB
constexpr const char* long_rows_f32 = "fwd b1 h8/8 q1024 k1024 d128 f32";
constexpr const char* decoding = "fwd b16 h32/8 q1 k4096 d128 bf16 nolse";  // 1.1 GFLOP, 268 MB

TEST_F(Shares, OfTilesOnlyForWhatIsComputedOnThem) {
  EXPECT_EQ(bound(long_rows, "cpu/amx").ceiling.name, "amx");
  EXPECT_EQ(bound("fwd b1 h8/8 q1024 k1024 d128 f16", "cpu/amx").ceiling.name, "amx");
  EXPECT_EQ(bound(long_rows_f32, "cpu/amx").ceiling.name, "fma");
  EXPECT_EQ(bound(long_rows, "cpu/avx512").ceiling.name, "fma");
  EXPECT_EQ(bound(long_rows, "cpu/unfused").ceiling.name, "fma");
}

TEST_F(Shares, OfMemoryWhereItsBytesTakeLonger) {
  for (const char* kernel : {"cpu/amx", "cpu/avx512"}) {
    const Bound read = bound(decoding, kernel);
    EXPECT_EQ(read.ceiling.name, "read");
    const double keys_and_values = 16.0 * 8 * 4096 * 2 * 128 * 2, rows = 16.0 * 32 * 2 * 128 * 2;
    EXPECT_DOUBLE_EQ(read.seconds, (keys_and_values + rows) / 20e9);
  }
  // A group of 16 needs 16 operations per byte of float16; meanwhile registers do 10, tiles 100.
  EXPECT_EQ(bound("fwd b16 h128/8 q1 k4096 d128 f16", "cpu/avx512").ceiling.name, "fma");
  EXPECT_EQ(bound("fwd b16 h128/8 q1 k4096 d128 f16", "cpu/amx").ceiling.name, "read");
}

TEST_F(Shares, OfManyRowsAreNeverOfMemory) {
  const char* short_keys = "fwd b1 h8/8 q64 k64 d64 bf16";  // read in 13 us, computed in 4
  EXPECT_EQ(bound(short_keys, "cpu/amx").ceiling.name, "amx");
  EXPECT_THAT(probed_, ElementsAre("amx"));
}

TEST_F(Shares, OfOtherCodeAreOfTheBestTheMachineHas) {
  EXPECT_EQ(bound(long_rows, "").ceiling.name, "amx");
  EXPECT_EQ(bound(long_rows_f32, "").ceiling.name, "fma");
}

TEST_F(Shares, OfOtherCodeWithoutTiles) {
  amx_ = false;
  EXPECT_EQ(bound(long_rows, "").ceiling.name, "fma");
}

TEST_F(Shares, OnAGpuAreOfItsProducts) {
  for (const char* text : {long_rows, decoding}) {
    Problem problem = parse_problem(text);
    problem.device_kind = DeviceKind::cuda;
    const Bound bound = bound_of(problem, "sm90/fwd", ceilings_);
    EXPECT_DOUBLE_EQ(bound.seconds, useful_flops(problem) / 500e12);
    EXPECT_EQ(share_text(bound, 4 * bound.seconds), "25 %");
    EXPECT_EQ(share_json(bound, 1)["peak_gflops"], 500e3);
  }
  EXPECT_THAT(probed_, ElementsAre("matmul"));
}

TEST_F(Shares, MeasureACeilingOnceAndOnlyIfAskedFor) {
  bound(long_rows, "cpu/avx512");
  EXPECT_THAT(probed_, ElementsAre("fma"));
  bound(long_rows, "cpu/avx512");
  bound(decoding, "cpu/avx512");
  EXPECT_THAT(probed_, ElementsAre("fma", "read"));
  EXPECT_EQ(ceilings_.text(), "fma: 200 GFLOP/s, made up\nread: 20 GB/s, made up\n");
}

TEST_F(Shares, SayWhatTheyAreOf) {
  const Bound bound = this->bound(long_rows, "cpu/amx");
  const double seconds = useful_flops(parse_problem(long_rows)) / 500e9;  // a quarter of the ceiling
  EXPECT_EQ(share_text(bound, seconds), "25 % of amx");
  const nlohmann::json json = share_json(bound, seconds);
  EXPECT_EQ(json.size(), 4u);
  EXPECT_EQ(json.at("ceiling"), "amx");
  EXPECT_EQ(json.at("ceiling_value"), 2000);
  EXPECT_EQ(json.at("ceiling_unit"), "GFLOP/s");
  EXPECT_DOUBLE_EQ(json.at("share"), 0.25);
}

TEST_F(Shares, OfAnAbsentCeilingAreUnknown) {
  amx_ = false;
  const Bound bound = this->bound(long_rows, "cpu/amx");
  EXPECT_EQ(share_text(bound, 1), "-");
  EXPECT_TRUE(share_json(bound, 1).at("share").is_null());
  EXPECT_TRUE(share_json(bound, 1).at("ceiling_value").is_null());
  EXPECT_EQ(ceilings_.text(), "amx: none, no tiles\n");
}

}  // namespace
}  // namespace attune::lab
