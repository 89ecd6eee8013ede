// The ceilings: that the probes compile cleanly, and that what they measure is of a plausible size.
#include "lab/measure/ceilings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "tests/jit/toy.hpp"
#include "tests/support/gpu.hpp"

namespace attune::lab {
namespace {

TEST(Probes, CompileWithoutSpills) {
  SKIP_WITHOUT_NVRTC();
  for (const jit::DeviceUnit& unit : probe_units()) {
    for (const char* arch : {"sm_90a", "sm_80"}) {
      if (unit.name == "probe/matmul" && std::string_view(arch) != "sm_90a") continue;
      const jit::Compiled compiled = compile_probe(unit, arch);
      EXPECT_TRUE(compiled.report.clean())
          << unit.name << " for " << arch << testing::PrintToString(compiled.report.warnings);
    }
  }
}

const Ceiling& named(const std::vector<Ceiling>& ceilings, std::string_view name) {
  for (const Ceiling& ceiling : ceilings)
    if (ceiling.name == name) return ceiling;
  ADD_FAILURE() << "no ceiling " << name;
  return ceilings.front();
}

TEST(Ceilings, OfThisCpuArePlausible) {
  attune_options options{};
  options.threads = 1;
  cpu::Threads threads(options);
  std::vector<std::string> said;
  const auto ceilings = cpu_ceilings(threads, [&](std::string_view name) { said.emplace_back(name); });
  EXPECT_THAT(said, testing::ElementsAre("fma", "pairs", "amx", "read"));
  // One core does more than a billion multiply-adds and less than ten thousand times that.
  EXPECT_GT(named(ceilings, "fma").value, 1);
  EXPECT_LT(named(ceilings, "fma").value, 1e4);
  EXPECT_GT(named(ceilings, "read").value, 0.1);
  EXPECT_LT(named(ceilings, "read").value, 1e3);
  const Ceiling& pairs = named(ceilings, "pairs");
  EXPECT_EQ(pairs.absence.empty(), cpu::pair_level() != nullptr);
  if (pairs.absence.empty()) {
    EXPECT_GT(pairs.value, 0.3 * named(ceilings, "fma").value);
    if (std::getenv("ATTUNE_CPU_ISA") == nullptr) {  // which may ask for the level even where it is slow
      EXPECT_EQ(pairs.value > named(ceilings, "fma").value, cpu::is_selectable(*cpu::pair_level()));
    }
  }
  const Ceiling& amx = named(ceilings, "amx");
  EXPECT_EQ(amx.absence, cpu::amx_absence());
  if (amx.absence.empty()) {
    EXPECT_GT(amx.value, named(ceilings, "fma").value) << "what tiles are for";
  }
  for (const Ceiling& ceiling : ceilings) EXPECT_LE(ceiling.lower, ceiling.upper);
}

// What a call of a probe is said to do must not depend on who shares it.
TEST(Ceilings, AProbeOfMoreThreadsDoesMoreWork) {
  const auto work = [](const char* ceiling, int count) {
    attune_options options{};
    options.threads = count;
    cpu::Threads threads(options);
    const CpuProbe probe = cpu_probe(ceiling, threads, "probe");
    EXPECT_EQ(probe.contender->name(), "probe");
    EXPECT_STREQ(probe.ceiling.name, ceiling);
    return probe.work;
  };
  EXPECT_DOUBLE_EQ(work("fma", 3), 3 * work("fma", 1));
  EXPECT_NEAR(work("read", 3), 256.0 * (1 << 20), 64);
  EXPECT_DOUBLE_EQ(work("read", 1), 256.0 * (1 << 20));
  if (cpu::pair_level() != nullptr) {
    EXPECT_DOUBLE_EQ(work("pairs", 2), 2 * work("pairs", 1));
  }
  if (cpu::amx_absence().empty())
    EXPECT_DOUBLE_EQ(work("amx", 2), 2 * work("amx", 1));
  else
    EXPECT_THAT([&] { work("amx", 1); }, testing::ThrowsMessage<Error>(testing::HasSubstr(cpu::amx_absence())));
  EXPECT_THAT([&] { work("exp2", 1); }, testing::ThrowsMessage<Error>(testing::HasSubstr("fma, pairs, amx and read")));
}

TEST(Ceilings, OfThisGpuArePlausible) {
  ATTUNE_REQUIRE_GPU();
  CudaGpu gpu;
  const auto ceilings = gpu_ceilings(gpu, [](std::string_view) {});
  for (const Ceiling& ceiling : ceilings) {
    EXPECT_EQ(ceiling.absence, "") << ceiling.name;
    EXPECT_LE(ceiling.lower, ceiling.value);
    EXPECT_GE(ceiling.upper, ceiling.value);
    RecordProperty(ceiling.name, fmt::format("{} {}", ceiling.value, ceiling.unit));
  }
  EXPECT_GT(named(ceilings, "read_l2").value, named(ceilings, "read").value);
  EXPECT_GT(named(ceilings, "launch").value, 0.2);
  EXPECT_LT(named(ceilings, "launch").value, 5);
  if (gpu.properties().major == 9) {
    EXPECT_GT(*named(ceilings, "matmul").share, 0.95);
    EXPECT_LT(*named(ceilings, "matmul").share, 1.01);
    EXPECT_NEAR(named(ceilings, "exp2").value, 16, 1);
  }
}

TEST(Ceilings, ACopyOnThisGpuIsNoDifference) {
  ATTUNE_REQUIRE_GPU();
  CudaGpu gpu;
  const NoiseFloor floor = gpu_noise_floor(gpu);
  EXPECT_TRUE(floor.fit) << floor.reason;
}

}  // namespace
}  // namespace attune::lab
