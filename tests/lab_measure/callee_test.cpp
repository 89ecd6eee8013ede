// What can be called: this library, the shared one beside it, and a plug-in; on the CPU, through the engine.
#include "lab/measure/callee.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "core/error.hpp"
#include "lab/check/inputs.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/forward_contender.hpp"
#include "tests/support/paths.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

const std::string plugin = test::build() + "/tests/libcontender_fixture.so";
const std::string shared_library = test::build() + "/libattune.so";

Problem small_problem() { return parse_problem("fwd b1 h2/2 q32 k32 d64 f16"); }

template <typename Call>
std::string complaint(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The plug-in reads its behaviour from the environment when it is opened and run.
struct Behaviour {
  explicit Behaviour(const char* what) { setenv("ATTUNE_TEST_CONTENDER", what, 1); }
  ~Behaviour() { unsetenv("ATTUNE_TEST_CONTENDER"); }
};

TEST(Plugin, IsCalledWithTheTensors) {
  const auto callee = plugin_callee(plugin, small_problem());
  EXPECT_EQ(callee->name(), "fixture");
  EXPECT_EQ(callee->workspace_bytes(), 96u);
  uint16_t output[4] = {};
  Operands operands;
  operands.set(Operand::o, output);
  callee->run(operands, nullptr);
  callee->run(operands, nullptr);
  EXPECT_EQ(output[0], 2);
}

TEST(Plugin, RefusalsAreToldInItsWords) {
  EXPECT_THAT(complaint([] { plugin_callee(plugin, parse_problem("fwd b1 h2/2 q32 k32 d128 f16")); }),
              HasSubstr("fixture: head dims above 64"));
  const auto callee = plugin_callee(plugin, small_problem());
  const Behaviour fails("fail");
  EXPECT_THROW(callee->run({}, nullptr), Error);
}

TEST(Plugin, AnUnusableOneIsRefused) {
  const auto open = [] { plugin_callee(plugin, small_problem()); };
  {
    const Behaviour behaviour("newer");
    EXPECT_THAT(complaint(open), HasSubstr("version 2"));
  }
  {
    const Behaviour behaviour("hollow");
    EXPECT_THAT(complaint(open), HasSubstr("is NULL"));
  }
  {
    const Behaviour behaviour("null");
    EXPECT_THAT(complaint(open), HasSubstr("gave NULL"));
  }
  EXPECT_THAT(complaint([] { plugin_callee("/nowhere/lib.so", {}); }), HasSubstr("/nowhere/lib.so: cannot be loaded"));
  EXPECT_THAT(complaint([] { plugin_callee(shared_library, {}); }), HasSubstr("has no function attune_contender"));
}

TEST(LibraryCallee, AnotherBuildGivesTheSameResultFromItsOwnCode) {
  const Library other = Library::open(shared_library);
  EXPECT_NE(other.forward, Library::own().forward) << "two copies of the code";
  EXPECT_EQ(other.abi_version(), Library::own().abi_version());

  const Problem problem = small_problem();
  attune_options options{};
  cpu::Threads threads(options);
  Tensors first = make_inputs(problem, InputKind::normal, 3, Storage::dense, threads);
  Tensors second = first;
  library_callee("own", Library::own(), problem, "")->run(first.operands(), nullptr);
  library_callee("other", other, problem, "")->run(second.operands(), nullptr);
  EXPECT_EQ(std::memcmp(first[Operand::o].data(), second[Operand::o].data(), first[Operand::o].data_bytes()), 0);
}

TEST(LibraryCallee, ItsRefusalNamesTheContender) {
  EXPECT_THAT(complaint([] { library_callee("mine", Library::own(), small_problem(), "no/such"); }),
              AllOf(HasSubstr("mine: "), HasSubstr("no/such")));
  EXPECT_THAT(complaint([] { Library::open(plugin); }), HasSubstr("has no function attune_create"));
}

TEST(CpuForward, OldAndNewShareRounds) {
  const Problem problem = small_problem();
  attune_options options{};
  cpu::Threads threads(options);
  const auto inputs = std::make_shared<InputSource>(problem, threads);
  const auto callee = [&](const char* name, const Library& library) {
    return library_callee(name, library, problem, "", 1);
  };
  Protocol protocol;
  protocol.rounds = 6;
  protocol.samples = 1;
  protocol.sample_seconds = 2e-4;
  Session session(protocol);
  session.add(cpu_forward_contender(callee("own", Library::own()), inputs));
  session.add_twin(cpu_forward_contender(callee("own", Library::own()), inputs));
  session.add(cpu_forward_contender(callee("against", Library::open(shared_library)), inputs));
  session.add(cpu_forward_contender(plugin_callee(plugin, problem), inputs));
  const Result result = session.run();
  ASSERT_EQ(result.analysis.comparisons.size(), 2u);
  EXPECT_EQ(result.analysis.comparisons[1].name, "fixture");
  EXPECT_LT(result.analysis.comparisons[1].verdict.estimate, 0.3) << "it computes nothing";
  EXPECT_THAT(result.measurement.recordings[2].facts.at("library"), HasSubstr("libattune.so"));
  EXPECT_THAT(result.measurement.recordings[0].facts.at("explain"), HasSubstr("cpu/"));
}

}  // namespace
}  // namespace attune::lab
