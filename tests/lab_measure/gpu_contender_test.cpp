// GPU contenders on a GPU that only keeps books: batches, buffer sets, edges, remaking, and nothing left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "fake_gpu.hpp"
#include "lab/check/inputs.hpp"
#include "lab/measure/device_tensors.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/forward_contender.hpp"
#include "lab/measure/graph_contender.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

class GpuContenderTest : public testing::Test {
 protected:
  std::unique_ptr<Contender> contender(GpuMode mode, double gpu_seconds, double host_seconds = 4e-6,
                                       uint64_t workspace = 0, const char* name = "fake") {
    return gpu_forward_contender(std::make_unique<FakeCallee>(name, gpu, machine, gpu_seconds, host_seconds, workspace),
                                 inputs, gpu, mode, machine);
  }
  const FakeGpu::Graph& only_graph() { return *gpu.graphs.begin()->second; }

  SimulatedMachine machine{1};
  FakeGpu gpu{machine};
  attune_options options{};
  cpu::Threads threads{options};
  std::shared_ptr<InputSource> inputs =
      std::make_shared<InputSource>(parse_problem("fwd b1 h2/2 q64 k64 d64 f16"), threads);
};

TEST_F(GpuContenderTest, SteadyFillsTheSampleTimeOnOneSetOfBuffers) {
  {
    const auto steady = contender(GpuMode::steady, 80e-6);
    steady->prepare(2e-3, 1);
    ASSERT_EQ(gpu.graphs.size(), 1u);
    const auto& calls = only_graph().calls;
    EXPECT_EQ(calls.size(), 25u);
    EXPECT_EQ(only_graph().edges, GraphEdges::full);
    for (const auto& call : calls) EXPECT_EQ(call.in(Operand::q), calls[0].in(Operand::q));
    const Sample sample = steady->sample();
    EXPECT_NEAR(sample.seconds, 80e-6, 0.3e-6);
    EXPECT_EQ(sample.clock_hz, 1.7e9);
    EXPECT_EQ(steady->facts().at("calls_per_sample"), "25");
    EXPECT_EQ(steady->facts().at("explain"), "fake");
  }
  EXPECT_TRUE(gpu.graphs.empty());
  EXPECT_TRUE(gpu.live.empty());
}

TEST_F(GpuContenderTest, ShortCallsComeFiftyToAGraph) {
  const auto steady = contender(GpuMode::steady, 5e-6);
  steady->prepare(2e-3, 1);
  EXPECT_EQ(only_graph().calls.size(), 50u);
}

TEST_F(GpuContenderTest, ALongCallIsABatchOfItsOwn) {
  const auto steady = contender(GpuMode::steady, 8e-3);
  steady->prepare(2e-3, 1);
  EXPECT_EQ(only_graph().calls.size(), 1u);
}

TEST_F(GpuContenderTest, ColdGoesRoundMoreBuffersThanTheCacheHolds) {
  const auto cold = contender(GpuMode::cold, 1e-3);
  cold->prepare(2e-3, 1);
  std::set<const void*> distinct;
  for (const auto& call : only_graph().calls) distinct.insert(call.in(Operand::k));
  const size_t bytes = tensor_bytes(*inputs->get(1));
  EXPECT_GE(distinct.size() * bytes, 2 * gpu.l2_bytes());
  EXPECT_GE(only_graph().calls.size(), distinct.size()) << "every set is used in every replay";
  EXPECT_EQ(buffer_sets_for_cold(100, 1000), 2);
  EXPECT_EQ(buffer_sets_for_cold(100, 50), 5);
}

TEST_F(GpuContenderTest, PdlKeepsProgrammaticEdges) {
  const auto pdl = contender(GpuMode::pdl, 10e-6);
  pdl->prepare(2e-3, 1);
  EXPECT_EQ(only_graph().edges, GraphEdges::as_launched);
  EXPECT_EQ(pdl->facts().at("programmatic_edges"), "49");
}

TEST_F(GpuContenderTest, HostTimesTheCallsAndNotTheGpu) {
  const auto host = contender(GpuMode::host, 1e-3, 3e-6);
  host->prepare(2e-3, 1);
  const double begin = machine.now();
  EXPECT_NEAR(host->sample().seconds, 3e-6, 1e-12);
  EXPECT_GT(machine.now() - begin, 64e-3) << "the queue was emptied in between";
  EXPECT_TRUE(gpu.graphs.empty());
}

TEST_F(GpuContenderTest, RemakingMovesTheBuffersAndKeepsTheBatch) {
  const auto steady = contender(GpuMode::steady, 10e-6);
  steady->prepare(2e-3, 1);
  const Operands before = only_graph().calls[0];
  const size_t calls = only_graph().calls.size();
  const int recorded = gpu.recorded;
  steady->remake(2);
  EXPECT_EQ(gpu.recorded, recorded + 1);
  ASSERT_EQ(gpu.graphs.size(), 1u);
  EXPECT_EQ(gpu.live.size(), 1u);
  const Operands after = only_graph().calls[0];
  EXPECT_EQ(only_graph().calls.size(), calls);
  const auto gap = [](const Operands& operands) {
    return static_cast<const char*>(operands.in(Operand::k)) - static_cast<const char*>(operands.in(Operand::q));
  };
  EXPECT_NE(gap(before), gap(after));
}

TEST_F(GpuContenderTest, CopiesHoldTheSameDataInDifferentPlaces) {
  const auto first = contender(GpuMode::steady, 10e-6), second = contender(GpuMode::steady, 10e-6);
  first->prepare(2e-3, 7);
  const Operands a = only_graph().calls[0];
  const GraphHandle first_graph = gpu.graphs.begin()->first;
  second->prepare(2e-3, 7);
  Operands b;
  for (const auto& [handle, graph] : gpu.graphs)
    if (handle != first_graph) b = graph->calls[0];
  const auto host = inputs->get(7);
  for (const Operands& operands : {a, b}) {
    EXPECT_EQ(std::memcmp(operands.in(Operand::q), (*host)[Operand::q].data(), (*host)[Operand::q].data_bytes()), 0);
    EXPECT_EQ(std::memcmp(operands.in(Operand::k), (*host)[Operand::k].data(), (*host)[Operand::k].data_bytes()), 0);
    EXPECT_EQ(std::memcmp(operands.in(Operand::v), (*host)[Operand::v].data(), (*host)[Operand::v].data_bytes()), 0);
    EXPECT_NE(operands.in(Operand::lse), nullptr);
    EXPECT_EQ(operands.in(Operand::bias), nullptr);
  }
  EXPECT_NE(static_cast<const char*>(a.in(Operand::k)) - static_cast<const char*>(a.in(Operand::q)),
            static_cast<const char*>(b.in(Operand::k)) - static_cast<const char*>(b.in(Operand::q)));
}

TEST_F(GpuContenderTest, WorkspaceIsThereWhenAskedFor) {
  const auto with = contender(GpuMode::steady, 10e-6, 4e-6, 1000);
  with->prepare(2e-3, 1);
  EXPECT_NE(only_graph().calls[0].workspace, nullptr);
  EXPECT_EQ(only_graph().calls[0].workspace_bytes, 1000u);
  const auto without = contender(GpuMode::steady, 10e-6);
  gpu.graphs.clear();
  without->prepare(2e-3, 1);
  EXPECT_EQ(only_graph().calls[0].workspace, nullptr);
}

TEST_F(GpuContenderTest, AHostCapturesAsManyCallsAsItIsAskedFor) {
  std::vector<std::pair<int, uint64_t>> captures;
  const auto capture = [&](int calls, uint64_t seed) {
    captures.emplace_back(calls, seed);
    const auto body = [&](StreamHandle) {
      for (int i = 0; i < calls; ++i) gpu.execute({}, 40e-6);
    };
    return gpu.record(GraphEdges::full, body).handle;
  };
  const auto torch = graph_contender(captured_graph("torch", capture, {{"backend", "cudnn"}}), gpu);
  torch->prepare(2e-3, 1);
  EXPECT_EQ(captures.back(), std::pair(50, uint64_t{1}));
  EXPECT_NEAR(torch->sample().seconds, 40.1e-6, 1e-9);
  torch->remake(9);
  EXPECT_EQ(captures.back(), std::pair(50, uint64_t{9}));
  EXPECT_EQ(torch->facts().at("backend"), "cudnn");

  const auto failing = graph_contender(captured_graph("bad", [](int, uint64_t) { return nullptr; }, {}), gpu);
  EXPECT_THROW(failing->prepare(2e-3, 1), Error);
  EXPECT_THROW(captured_graph("none", {}, {}), Error);
}

TEST_F(GpuContenderTest, AGivenGraphIsReplayedAsItIs) {
  const auto body = [&](StreamHandle) {
    for (int i = 0; i < 20; ++i) gpu.execute({}, 40e-6);
  };
  const GraphHandle graph = gpu.record(GraphEdges::full, body).handle;
  const int recorded = gpu.recorded;
  const auto given = graph_contender(fixed_graph("given", graph, 20, {}), gpu);
  given->prepare(2e-3, 1);
  given->remake(2);
  EXPECT_EQ(gpu.recorded, recorded);
  EXPECT_NEAR(given->sample().seconds, 40.25e-6, 1e-9);
  EXPECT_EQ(given->facts().at("graph"), "the same in every round");
  EXPECT_THROW(fixed_graph("given", nullptr, 20, {}), Error);
  EXPECT_THROW(fixed_graph("given", graph, 0, {}), Error);
}

TEST_F(GpuContenderTest, AWholeRunThroughTheEngine) {
  Protocol protocol;
  protocol.mode = "steady";
  {
    Session session(protocol, machine);
    session.add(contender(GpuMode::steady, 10e-6, 4e-6, 0, "old"));
    session.add_twin(contender(GpuMode::steady, 10e-6, 4e-6, 0, "old"));
    session.add(contender(GpuMode::steady, 9e-6, 4e-6, 0, "new"));
    const Result result = session.run();
    EXPECT_EQ(result.analysis.comparisons[0].verdict.outcome, stats::Outcome::faster);
    EXPECT_FALSE(result.analysis.unfit());
    EXPECT_TRUE(result.measurement.recordings[0].remade);
  }
  EXPECT_TRUE(gpu.graphs.empty());
  EXPECT_TRUE(gpu.live.empty());
}

TEST(GpuMode, NamesRoundTrip) {
  for (const GpuMode mode : {GpuMode::steady, GpuMode::cold, GpuMode::pdl, GpuMode::host})
    EXPECT_EQ(gpu_mode_from(name_of(mode)), mode);
  EXPECT_THROW(gpu_mode_from("hot"), Error);
}

}  // namespace
}  // namespace attune::lab
