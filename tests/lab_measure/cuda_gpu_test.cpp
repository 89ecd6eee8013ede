// The engine on a real GPU, measuring kernels of known length. Skipped, and said so, where there is none.
#include "lab/measure/cuda_gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/forward_contender.hpp"
#include "lab/measure/graph_contender.hpp"
#include "tests/support/gpu.hpp"

namespace attune::lab {
namespace {

using namespace gpu;

// Every block is busy for `cycles` SM cycles.
constexpr const char* busy_ptx = R"ptx(
.version 7.8
.target sm_80
.address_size 64
.visible .entry busy(.param .u64 cycles)
{
  .reg .pred %more;
  .reg .b64 %wanted, %begin, %now;
  ld.param.u64 %wanted, [cycles];
  mov.u64 %begin, %clock64;
MORE:
  mov.u64 %now, %clock64;
  sub.u64 %now, %now, %begin;
  setp.lt.u64 %more, %now, %wanted;
  @%more bra MORE;
  ret;
}
)ptx";

class CudaGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    ATTUNE_REQUIRE_GPU();
    gpu = std::make_unique<CudaGpu>();
    const Driver& d = gpu->driver();
    d.check(d.cuModuleLoadData(&module, busy_ptx), "cuModuleLoadData");
    d.check(d.cuModuleGetFunction(&busy, module, "busy"), "cuModuleGetFunction");
  }
  void TearDown() override {
    if (module != nullptr) gpu->driver().cuModuleUnload(module);
  }

  void launch(StreamHandle stream, uint64_t cycles, bool programmatic = false) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{132, 1, 1, 32, 1, 1, 0, static_cast<CUstream>(stream), &attribute, programmatic ? 1u : 0u};
    void* params[] = {&cycles};
    gpu->driver().check(gpu->driver().cuLaunchKernelEx(&config, busy, params, nullptr), "cuLaunchKernelEx");
  }

  GraphHandle record(int calls, uint64_t cycles) {
    return gpu
        ->record(GraphEdges::full,
                 [&](StreamHandle stream) {
                   for (int i = 0; i < calls; ++i) launch(stream, cycles);
                 })
        .handle;
  }

  // Captured anew between rounds like any short contender; the graphs are dropped at the end.
  std::unique_ptr<Contender> contender(const char* name, uint64_t cycles) {
    const auto capture = [this, cycles](int calls, uint64_t) { return graphs.emplace_back(record(calls, cycles)); };
    return graph_contender(captured_graph(name, capture, {}), *gpu);
  }
  void drop_graphs() {
    for (const GraphHandle graph : graphs) gpu->release_graph(graph);
    graphs.clear();
  }

  std::unique_ptr<CudaGpu> gpu;
  CUmodule module = nullptr;
  CUfunction busy = nullptr;
  std::vector<GraphHandle> graphs;
};

TEST_F(CudaGpuTest, TimeAndClockOfAKernelOfKnownLength) {
  constexpr int calls = 100;
  constexpr uint64_t cycles = 40000;
  const GraphHandle graph = record(calls, cycles);
  gpu->replay(graph);
  const Sample sample = gpu->replay(graph);
  gpu->release_graph(graph);
  EXPECT_GT(sample.clock_hz, 0.2e9);
  EXPECT_LT(sample.clock_hz, 4e9);
  // A launch within a graph adds about a microsecond.
  const double cycles_per_call = sample.seconds / calls * sample.clock_hz;
  EXPECT_GT(cycles_per_call, cycles);
  EXPECT_LT(cycles_per_call, cycles * 1.10);
  RecordProperty("clock_mhz", static_cast<int>(sample.clock_hz / 1e6));
  RecordProperty("nanoseconds_per_call", static_cast<int>(sample.seconds / calls * 1e9));
}

TEST_F(CudaGpuTest, HostLatencyIsOutsideTheTiming) {
  const GraphHandle graph = record(1, 2000);
  std::vector<double> seconds;
  for (int i = 0; i < 20; ++i) seconds.push_back(gpu->replay(graph).seconds);
  gpu->release_graph(graph);
  std::ranges::sort(seconds);
  RecordProperty("median_nanoseconds", static_cast<int>(seconds[10] * 1e9));
  EXPECT_LT(seconds[10], 9e-6) << "a kernel of about 1 us, alone in its graph";
}

TEST_F(CudaGpuTest, SeesThreePerCentAndLeavesACopyAlone) {
  Protocol protocol;
  protocol.samples = 4;
  protocol.mode = "steady";
  int slower = 0, claims_about_copy = 0, unfit = 0;
  for (int run = 0; run < 20; ++run) {
    protocol.seed = static_cast<uint64_t>(run);
    Session session(protocol);
    session.add(contender("base", 40000));
    session.add_twin(contender("base", 40000));
    session.add(contender("slowed", 41200));
    session.add(contender("copy", 40000));
    const Result result = session.run();
    slower += result.analysis.comparisons[0].verdict.outcome == stats::Outcome::slower;
    const stats::Outcome copy = result.analysis.comparisons[1].verdict.outcome;
    claims_about_copy += copy == stats::Outcome::faster || copy == stats::Outcome::slower;
    unfit += result.analysis.unfit();
    drop_graphs();
  }
  EXPECT_EQ(slower, 20);
  EXPECT_EQ(claims_about_copy, 0);
  EXPECT_EQ(unfit, 0);
}

TEST_F(CudaGpuTest, ProgrammaticEdgesAreKeptOrMadeFull) {
  const auto body = [&](StreamHandle stream) {
    for (int i = 0; i < 5; ++i) launch(stream, 1000, true);
  };
  const RecordedGraph kept = gpu->record(GraphEdges::as_launched, body);
  EXPECT_EQ(kept.programmatic_edges, 4);
  const RecordedGraph full = gpu->record(GraphEdges::full, body);
  EXPECT_EQ(full.programmatic_edges, 0);
  EXPECT_GT(gpu->replay(kept.handle).seconds, 0);
  EXPECT_GT(gpu->replay(full.handle).seconds, 0);
  gpu->release_graph(kept.handle);
  gpu->release_graph(full.handle);
}

TEST_F(CudaGpuTest, AFailureInsideACaptureLeavesTheStreamUsable) {
  EXPECT_THROW(gpu->record(GraphEdges::full, [](StreamHandle) { fail(ATTUNE_UNSUPPORTED, "no"); }), Error);
  const GraphHandle graph = record(1, 1000);
  EXPECT_GT(gpu->replay(graph).seconds, 0);
  gpu->release_graph(graph);
}

TEST_F(CudaGpuTest, FactsNameTheCard) {
  const Facts facts = gpu->facts();
  EXPECT_FALSE(facts.at("card").empty());
  EXPECT_GT(std::stoll(facts.at("l2_bytes")), 0);
  for (const auto& [key, value] : facts) RecordProperty(key, value);
  for (const auto& [key, value] : gpu->state("now_")) RecordProperty(key, value);
}

TEST_F(CudaGpuTest, AKernelOfTheLibraryInEveryMode) {
  Problem problem = parse_problem("fwd b1 h8/8 q256 k256 d64 f16 overlap kvready");
  problem.device_kind = DeviceKind::cuda;
  attune_options options{};
  cpu::Threads threads(options);
  const auto inputs = std::make_shared<InputSource>(problem, threads);
  Protocol protocol;
  protocol.rounds = 6;
  protocol.samples = 2;
  for (const GpuMode mode : {GpuMode::steady, GpuMode::cold, GpuMode::pdl, GpuMode::host}) {
    protocol.mode = name_of(mode);
    const auto contender = [&] {
      auto callee = library_callee("own", Library::own(), problem, "");
      return gpu_forward_contender(std::move(callee), inputs, *gpu, mode);
    };
    Session session(protocol);
    session.add(contender());
    session.add_twin(contender());
    const Result result = session.run();
    const double seconds = result.analysis.summaries[0].seconds;
    EXPECT_GT(seconds, 5e-7) << protocol.mode;
    EXPECT_LT(seconds, 1e-2) << protocol.mode;
    EXPECT_NEAR(result.analysis.noise_floor->comparison.verdict.estimate, 1, 0.2) << protocol.mode;
    RecordProperty(protocol.mode + "_nanoseconds", static_cast<int>(seconds * 1e9));
    const Facts& facts = result.measurement.recordings[0].facts;
    if (mode == GpuMode::steady) {
      EXPECT_EQ(facts.at("programmatic_edges"), "0");
    }
    if (mode == GpuMode::pdl) {
      const bool overlaps = facts.at("explain").find("; overlaps the end of") != std::string::npos;
      EXPECT_EQ(std::stoi(facts.at("programmatic_edges")) > 0, overlaps) << facts.at("explain");
    }
    if (mode == GpuMode::cold) {
      EXPECT_GT(std::stoi(facts.at("buffer_sets")), 10);
    }
  }
}

}  // namespace
}  // namespace attune::lab
