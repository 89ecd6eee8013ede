// The executor of code from outside on a GPU that is made up: what is judged is the replay of a graph.
#include "lab/trial/callee_executor.hpp"

#include <gtest/gtest.h>

#include "lab/check/inputs.hpp"
#include "lab/measure/device_tensors.hpp"
#include "tests/lab_measure/fake_gpu.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

const std::string plugin = test::build() + "/tests/libfaulty_plugin.so";

Tensors inputs(const std::string& text) {
  cpu::Threads threads(attune_options{});
  return make_inputs(parse_problem(text), InputKind::normal, 1, Storage::padded, threads);
}

TEST(DeviceTensors, ComeBackWithWhatStandsAroundThem) {
  SimulatedMachine machine(1);
  FakeGpu gpu(machine);
  const Tensors host = inputs("fwd b1 h2/2 q20 k30 d16 f32");
  const DeviceTensors there(gpu, host, 64, 7);
  static_cast<float*>(there.operands().out(Operand::o))[0] = 5;
  static_cast<float*>(there.operands().out(Operand::o))[-1] = 6;  // in the red zone
  Tensors back = host;
  there.download(back);
  EXPECT_EQ(back[Operand::o].as<float>()[0], 5);
  EXPECT_NE(stray_writes(back), "");
  EXPECT_EQ(
      std::memcmp(back[Operand::q].whole().data(), host[Operand::q].whole().data(), host[Operand::q].whole().size()),
      0);
}

TEST(CalleeExecutor, RunsOnAStreamAndThenAsAGraphOnOtherMemory) {
  SimulatedMachine machine(1);
  FakeGpu gpu(machine);
  std::vector<bool> at_work;
  const auto executor = make_callee_executor({.plugin = plugin}, &gpu, [&](bool works) { at_work.push_back(works); });
  Tensors tensors = inputs("fwd b1 h2/2 q20 k30 d16 f32");
  EXPECT_EQ(executor->choose("", tensors.problem).kernel, "outsider");
  executor->Executor::run("", tensors);
  EXPECT_EQ(gpu.recorded, 1);
  EXPECT_EQ(gpu.memory.size(), 2u) << "the first call's and the judged ones";
  EXPECT_TRUE(gpu.live.empty()) << "all of it was released";
  EXPECT_TRUE(gpu.graphs.empty());
  EXPECT_EQ(stray_writes(tensors), "");
  EXPECT_EQ(at_work, std::vector<bool>({true, false, true, false}));
}

TEST(CalleeExecutor, SaysWhyAProblemIsNotTaken) {
  const auto executor = make_callee_executor({.plugin = plugin}, nullptr, [](bool) {});
  EXPECT_EQ(executor->choose("", parse_problem("fwd b1 h2/2 q20 k30 d16 f16")).why,
            "outsider: float32 and no features but lse");
}

}  // namespace
}  // namespace attune::lab
