// The card's facts through a management library that the test plays.
#include "lab/measure/nvml.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lab/measure/environment.hpp"

namespace attune::lab {
namespace {

using testing::HasSubstr;

int sessions = 0;
unsigned long long throttle = 0;
bool power_readable = true;
int start_status = 0;

int init() {
  ++sessions;
  return start_status;
}
int shut() {
  --sessions;
  return 0;
}
int by_pci(const char* id, void** device) {
  if (std::strcmp(id, "0000:01:00.0") != 0) return 6;
  *device = &sessions;
  return 0;
}
int driver(char* text, unsigned) { return std::strcpy(text, "580.1") != nullptr ? 0 : 1; }
int name(void*, char* text, unsigned) { return std::strcpy(text, "Test Card") != nullptr ? 0 : 1; }
int uuid(void*, char* text, unsigned) { return std::strcpy(text, "GPU-1234") != nullptr ? 0 : 1; }
int clock_now(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1755 : 3201;
  return 0;
}
int clock_max(void*, int type, unsigned* mhz) {
  *mhz = type == 1 ? 1980 : 3201;
  return 0;
}
int temperature(void*, int, unsigned* celsius) {
  *celsius = 41;
  return 0;
}
int power(void*, unsigned* milliwatts) {
  *milliwatts = 312500;
  return power_readable ? 0 : 3;
}
int power_limit(void*, unsigned* milliwatts) {
  *milliwatts = 700000;
  return 0;
}
int reasons(void*, unsigned long long* bits) {
  *bits = throttle;
  return 0;
}

int computing(void*, unsigned* count, void* infos) {
  *count = 3;
  return infos == nullptr ? 7 : 0;
}

void* lookup(const char* symbol) {
  const std::map<std::string, void*> table{
      {"nvmlInit_v2", reinterpret_cast<void*>(init)},
      {"nvmlShutdown", reinterpret_cast<void*>(shut)},
      {"nvmlDeviceGetHandleByPciBusId_v2", reinterpret_cast<void*>(by_pci)},
      {"nvmlSystemGetDriverVersion", reinterpret_cast<void*>(driver)},
      {"nvmlDeviceGetName", reinterpret_cast<void*>(name)},
      {"nvmlDeviceGetUUID", reinterpret_cast<void*>(uuid)},
      {"nvmlDeviceGetClockInfo", reinterpret_cast<void*>(clock_now)},
      {"nvmlDeviceGetMaxClockInfo", reinterpret_cast<void*>(clock_max)},
      {"nvmlDeviceGetTemperature", reinterpret_cast<void*>(temperature)},
      {"nvmlDeviceGetPowerUsage", reinterpret_cast<void*>(power)},
      {"nvmlDeviceGetEnforcedPowerLimit", reinterpret_cast<void*>(power_limit)},
      {"nvmlDeviceGetCurrentClocksThrottleReasons", reinterpret_cast<void*>(reasons)},
      {"nvmlDeviceGetComputeRunningProcesses_v3", reinterpret_cast<void*>(computing)}};
  const auto found = table.find(symbol);
  return found == table.end() ? nullptr : found->second;
}

TEST(Nvml, TellsWhatTheCardTells) {
  std::string why_not;
  {
    const auto nvml = Nvml::open(lookup, why_not);
    ASSERT_NE(nvml, nullptr) << why_not;
    const Facts card = nvml->card("0000:01:00.0");
    EXPECT_EQ(card.at("card"), "Test Card");
    EXPECT_EQ(card.at("driver"), "580.1");
    EXPECT_EQ(card.at("sm_clock_max_mhz"), "1980");
    EXPECT_EQ(card.at("power_limit_watts"), "700");
    EXPECT_EQ(card.at("card_id").size(), 16u);
    EXPECT_EQ(card.at("card_id").find("1234"), std::string::npos) << "the UUID itself is not told";

    throttle = 0x4 | 0x1;
    const Facts state = nvml->state("0000:01:00.0", "before_");
    EXPECT_EQ(state.at("before_sm_clock_mhz"), "1755");
    EXPECT_EQ(state.at("before_temperature_celsius"), "41");
    EXPECT_EQ(state.at("before_power_watts"), "312.5");
    EXPECT_EQ(state.at("before_clock_held_by"), "power cap");
  }
  EXPECT_EQ(sessions, 0);
}

TEST(Nvml, LeavesOutWhatCannotBeRead) {
  std::string why_not;
  const auto nvml = Nvml::open(lookup, why_not);
  ASSERT_NE(nvml, nullptr);
  power_readable = false;
  EXPECT_FALSE(nvml->state("0000:01:00.0", "").contains("power_watts"));
  power_readable = true;
  EXPECT_TRUE(nvml->state("0000:99:00.0", "").empty());
  EXPECT_EQ(nvml->card("0000:99:00.0").size(), 1u) << "the driver is known, the card is not";
}

TEST(Nvml, CountsProcessesWhereTheDriverCan) {
  std::string why_not;
  EXPECT_EQ(Nvml::open(lookup, why_not)->processes("0000:01:00.0"), 3);
  EXPECT_FALSE(Nvml::open(lookup, why_not)->processes("0000:99:00.0").has_value());
  const auto older = [](const char* symbol) {
    return std::strstr(symbol, "ComputeRunningProcesses") != nullptr ? nullptr : lookup(symbol);
  };
  const auto nvml = Nvml::open(older, why_not);
  ASSERT_NE(nvml, nullptr) << "an older driver has the rest";
  EXPECT_FALSE(nvml->processes("0000:01:00.0").has_value());
}

TEST(Nvml, SaysWhyItIsAbsent) {
  std::string why_not;
  const auto without_power = [](const char* symbol) {
    return std::strcmp(symbol, "nvmlDeviceGetPowerUsage") == 0 ? nullptr : lookup(symbol);
  };
  EXPECT_EQ(Nvml::open(without_power, why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("nvmlDeviceGetPowerUsage"));
  start_status = 9;
  EXPECT_EQ(Nvml::open(lookup, why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("9"));
  start_status = 0;
}

TEST(Environment, NamesTheMachine) {
  const Facts facts = host_facts();
  EXPECT_FALSE(facts.at("processor").empty());
  EXPECT_GE(std::stoi(facts.at("cpus")), 1);
  EXPECT_THAT(facts.at("system"), HasSubstr("Linux"));
}

}  // namespace
}  // namespace attune::lab
