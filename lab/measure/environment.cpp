#include "lab/measure/environment.hpp"

#include <sched.h>
#include <sys/utsname.h>

#include <fstream>

#include "attune/attune.h"

namespace attune::lab {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Facts host_facts() {
  Facts facts{
      {"processor", processor_name()}, {"compiler", __VERSION__}, {"attune_abi", std::to_string(attune_abi_version())}};
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) facts["cpus"] = std::to_string(CPU_COUNT(&allowed));
  utsname system{};
  if (uname(&system) == 0) facts["system"] = std::string(system.sysname) + " " + system.release + " " + system.machine;
  return facts;
}

}  // namespace attune::lab
