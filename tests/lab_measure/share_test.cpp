// Which ceiling a row is judged by, and the share of it that is formed inside rounds, on machines that are made up.
#include "lab/measure/share.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lab/measure/cpu_contender.hpp"
#include "lab/stats/random.hpp"
#include "lab/stats/summary.hpp"

namespace attune::lab {
namespace {

using testing::ElementsAre;

constexpr const char* long_rows = "fwd b1 h8/8 q1024 k1024 d128 bf16";
constexpr const char* long_rows_f32 = "fwd b1 h8/8 q1024 k1024 d128 f32";
constexpr const char* decoding = "fwd b16 h32/8 q1 k4096 d128 bf16 nolse";  // 1.1 GFLOP, 268 MB
constexpr CeilingName tiles{"amx", "made up", "GFLOP/s"}, memory{"read", "made up", "GB/s"};

std::vector<std::string> ceilings(const char* problem, std::string_view kernel,
                                  PairUnits machine = {.tiles = true, .vectors = true}) {
  return cpu_ceilings_of(parse_problem(problem), kernel, machine);
}

// Two samples a round.
Recording recording_of(std::string name, const std::vector<double>& seconds) {
  Recording recording;
  recording.name = std::move(name);
  for (const double value : seconds) recording.rounds.push_back({{value, 0}, {value, 0}});
  return recording;
}

TEST(Shares, OfTilesOnlyForWhatIsComputedOnThem) {
  EXPECT_THAT(ceilings(long_rows, "cpu/amx"), ElementsAre("amx"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q1024 k1024 d128 f16", "cpu/amx"), ElementsAre("amx"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q1024 k1024 d128 f32 high", "cpu/amx"), ElementsAre("amx"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q1024 k1024 d128 f32 high", "cpu/avx512"), ElementsAre("fma"));
  EXPECT_THAT(ceilings(long_rows_f32, "cpu/amx"), ElementsAre("fma"));
  EXPECT_THAT(ceilings(long_rows, "cpu/avx512"), ElementsAre("fma"));
  EXPECT_THAT(ceilings(long_rows, "cpu/unfused"), ElementsAre("fma"));
}

TEST(Shares, OfPairsOnlyForWhatIsComputedInThem) {
  EXPECT_THAT(ceilings(long_rows, "cpu/avx512bf16"), ElementsAre("pairs"));
  EXPECT_THAT(ceilings(long_rows_f32, "cpu/avx512bf16"), ElementsAre("fma"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q1024 k1024 d128 f16", "cpu/avx512bf16"), ElementsAre("fma"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q1024 k1024 d128 f32 high", "cpu/avx512bf16"), ElementsAre("fma"));
  EXPECT_THAT(ceilings(decoding, "cpu/avx512bf16"), ElementsAre("pairs", "read"));
  EXPECT_THAT(ceilings("fwd b1 h16/8 q1 k64 d64 bf16", "cpu/avx512bf16"), ElementsAre("fma", "read"));
  EXPECT_THAT(ceilings("fwd b1 h64/8 q1 k64 d64 bf16", "cpu/avx512bf16"), ElementsAre("pairs", "read"));
  EXPECT_THAT(ceilings("fwd b1 h72/8 q1 k64 d64 bf16", "cpu/avx512bf16"), ElementsAre("fma", "read"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q16 k64 d64 bf16", "cpu/avx512bf16"), ElementsAre("fma", "read"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q17 k64 d64 bf16", "cpu/avx512bf16"), ElementsAre("pairs", "read"));
}

TEST(Shares, OfFewRowsMayBeOfMemory) {
  EXPECT_THAT(ceilings(decoding, "cpu/avx512"), ElementsAre("fma", "read"));
  EXPECT_THAT(ceilings(decoding, "cpu/amx"), ElementsAre("amx", "read"));
  EXPECT_THAT(ceilings("fwd b1 h8/8 q33 k64 d64 bf16", "cpu/amx"), ElementsAre("amx"));
  const double keys_and_values = 16.0 * 8 * 4096 * 2 * 128 * 2, rows = 16.0 * 32 * 2 * 128 * 2;
  EXPECT_DOUBLE_EQ(work_for(parse_problem(decoding), "read"), keys_and_values + rows);
  EXPECT_DOUBLE_EQ(work_for(parse_problem(decoding), "fma"), useful_flops(parse_problem(decoding)));
}

TEST(Shares, OfOtherCodeAreOfTheBestTheMachineHas) {
  EXPECT_THAT(ceilings(long_rows, ""), ElementsAre("amx"));
  EXPECT_THAT(ceilings(long_rows, "", {.tiles = false, .vectors = true}), ElementsAre("pairs"));
  EXPECT_THAT(ceilings(long_rows, "", {}), ElementsAre("fma"));
  EXPECT_THAT(ceilings(long_rows_f32, ""), ElementsAre("fma"));
}

TEST(Shares, OnAGpuAreOfItsProducts) {
  Ceiling matmul;
  matmul.name = "matmul";
  matmul.unit = "TFLOP/s";
  matmul.value = 500;
  const Share share = gpu_share(matmul, 125e12, 1);
  EXPECT_EQ(share_text(share), "25 %");
  EXPECT_EQ(share_json(share).at("peak_gflops"), 500e3);
  EXPECT_EQ(share_json(share).at("ceiling_value"), 500);
  EXPECT_FALSE(share_json(share).contains("share_lo"));

  matmul.absence = "no tensor cores that are known";
  EXPECT_EQ(share_text(gpu_share(matmul, 125e12, 1)), "-");
  EXPECT_TRUE(share_json(gpu_share(matmul, 125e12, 1)).at("share").is_null());
  EXPECT_TRUE(share_json(gpu_share(matmul, 125e12, 1)).at("ceiling_value").is_null());
}

TEST(Shares, AreTheMedianOfTheRoundsWithItsInterval) {
  // A probe of 1 GFLOP a call beside a kernel of 2: at the ceiling the kernel would take twice as long.
  const Recording probe = recording_of("amx by 2 threads", {1e-3, 4e-3, 1e-3, 1e-3, 4e-3, 1e-3, 0.8e-3});
  const Recording kernel = recording_of("attune", {4e-3, 16e-3, 5e-3, 4e-3, 20e-3, 4e-3, 6.4e-3});
  const Share share = share_in_rounds(kernel, 2e9, {tiles, 1e9, &probe}, {});
  EXPECT_THAT(share.rounds->by_round, testing::Pointwise(testing::DoubleNear(1e-12), {.5, .5, .4, .5, .4, .5, .25}));
  EXPECT_NEAR(share.estimate, 0.5, 1e-12);
  EXPECT_NEAR(*share.value, 1000, 1e-9);
  EXPECT_EQ(share_text(share), "50.0 % [25.0, 50.0] of amx");
  const nlohmann::json json = share_json(share);
  EXPECT_EQ(json.size(), 7u);
  EXPECT_EQ(json.at("ceiling"), "amx");
  EXPECT_NEAR(json.at("share_of_quickest"), 0.4, 1e-12) << "0.8 ms of the probe, 4 ms of the kernel";
  EXPECT_EQ(json.at("ceiling_unit"), "GFLOP/s");
  EXPECT_NEAR(json.at("ceiling_value"), 1000, 1e-9);
  EXPECT_NEAR(json.at("share"), 0.5, 1e-12);
  EXPECT_NEAR(json.at("share_lo"), 0.25, 1e-12);
  EXPECT_NEAR(json.at("share_hi"), 0.5, 1e-12);
}

TEST(Shares, OfMemoryCountBytes) {
  const Recording probe = recording_of("read by 1 thread", std::vector<double>(6, 10e-3));
  const Recording kernel = recording_of("attune", std::vector<double>(6, 20e-3));
  const Share share = share_in_rounds(kernel, 268e6, {memory, 268e6, &probe}, {});
  EXPECT_EQ(share_text(share), "50.0 % [50.0, 50.0] of read");
  EXPECT_NEAR(*share.value, 26.8, 1e-9);
}

TEST(CeilingFigures, AreShownWithTheirRange) {
  CeilingFigures figures;
  EXPECT_EQ(figures.text(), "");
  figures.note(memory, 1, 20);
  for (const double value : {2000.0, 600.0, 1900.0}) figures.note(tiles, 2, value);
  EXPECT_EQ(figures.text(),
            "amx: 1900 GFLOP/s (median of 3 problems, 600 to 2000), made up, 2 threads\n"
            "read: 20 GB/s, made up, 1 thread\n");
}

// A tile unit that is `slowdown` times slower for stretches of time, as those of virtual machines are.
class BistableMachine final : public Clock {
 public:
  explicit BistableMachine(uint64_t seed) : random_(seed) {}

  double now() override { return now_; }
  void compute(double seconds_when_fast) {
    while (seconds_when_fast > 0) {
      if (now_ >= until_) {
        slow_ = !slow_;
        until_ = now_ - mean_stretch * std::log(1 - random_.uniform());
      }
      const double factor = slow_ ? slowdown : 1;
      const double here = std::min(seconds_when_fast, (until_ - now_) / factor);
      now_ += std::max(here * factor, 1e-12);
      seconds_when_fast -= here;
    }
  }

 private:
  static constexpr double slowdown = 3, mean_stretch = 0.5;
  stats::Random random_;
  double now_ = 0, until_ = 0;
  bool slow_ = false;
};

std::unique_ptr<Contender> computing(std::string name, BistableMachine& machine, double seconds) {
  return std::make_unique<CpuContender>(
      std::move(name), [&machine, seconds] { machine.compute(seconds); }, std::function<void(uint64_t)>{}, machine);
}

// A kernel of 20 ms at 40 % of the ceiling, on machines that are slow half of the time.
TEST(Shares, InsideRoundsHoldWhereAProbeOfAnotherMomentDoesNot) {
  constexpr double probe_work = 1e9, probe_seconds = 0.5e-3;
  constexpr double kernel_seconds = 20e-3, truth = 0.4;
  constexpr double kernel_work = truth * kernel_seconds * probe_work / probe_seconds;
  const auto far = [](double share, double allowed) { return share > truth * allowed || share < truth / allowed; };
  int wrong_inside = 0, wrong_apart = 0;
  for (uint64_t run = 0; run < 40; ++run) {
    BistableMachine machine(run);
    Protocol protocol;
    protocol.budget_seconds = 6;
    Session session(protocol, machine);
    session.add(computing("kernel", machine, kernel_seconds));
    session.add_probe(computing("probe", machine, probe_seconds), "kernel");
    const auto recordings = session.run().measurement.recordings;
    const Share inside = share_in_rounds(recordings[0], kernel_work, {tiles, probe_work, &recordings[1]}, {});
    wrong_inside += far(inside.estimate, 1.25);

    Session before(ceiling_protocol(), machine);
    before.add(computing("probe", machine, probe_seconds));
    const double at_ceiling = before.run().analysis.summaries[0].seconds / probe_work * kernel_work;
    wrong_apart += far(at_ceiling / stats::median(round_seconds(recordings[0])), 1.25);
  }
  EXPECT_EQ(wrong_inside, 0);
  EXPECT_GE(wrong_apart, 10);
}

}  // namespace
}  // namespace attune::lab
