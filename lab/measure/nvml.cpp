#include "lab/measure/nvml.hpp"

#include <dlfcn.h>
#include <xxhash.h>

#include <array>

#include "core/error.hpp"

namespace attune::lab {
namespace {

// Our own declarations of the few calls used: nvml.h belongs to the driver's package and need not be there.
using Handle = void*;
constexpr int nvml_success = 0, nvml_insufficient_size = 7;
constexpr int clock_sm = 1, clock_memory = 2, sensor_gpu = 0;
constexpr unsigned text_bytes = 96;

constexpr const char* library_name = "libnvidia-ml.so.1";

std::string throttle_text(unsigned long long reasons) {
  // The bits of nvmlClocksEventReasons; "idle" and "applications clocks" are no complaint.
  constexpr std::array<std::pair<unsigned long long, const char*>, 6> known{{{0x04, "power cap"},
                                                                             {0x08, "hardware slowdown"},
                                                                             {0x20, "thermal (software)"},
                                                                             {0x40, "thermal (hardware)"},
                                                                             {0x80, "power brake"},
                                                                             {0x10, "sync boost"}}};
  std::string text;
  for (const auto& [bit, name] : known)
    if ((reasons & bit) != 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return text.empty() ? "none" : text;
}

}  // namespace

struct Nvml::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_pci)(const char*, Handle*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*clock)(Handle, int, unsigned*) = nullptr;
  int (*max_clock)(Handle, int, unsigned*) = nullptr;
  int (*temperature)(Handle, int, unsigned*) = nullptr;
  int (*power)(Handle, unsigned*) = nullptr;
  int (*power_limit)(Handle, unsigned*) = nullptr;
  int (*throttle_reasons)(Handle, unsigned long long*) = nullptr;
  int (*compute_processes)(Handle, unsigned*, void*) = nullptr;  // nullptr: a driver older than this function

  template <typename Function>
  static void find(const Lookup& lookup, const char* symbol, Function& function, std::string& missing) {
    function = reinterpret_cast<Function>(lookup(symbol));
    if (function == nullptr) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", symbol);
  }

  std::string load(const Lookup& lookup) {
    std::string missing;
    find(lookup, "nvmlInit_v2", init, missing);
    find(lookup, "nvmlShutdown", shutdown, missing);
    find(lookup, "nvmlDeviceGetHandleByPciBusId_v2", handle_by_pci, missing);
    find(lookup, "nvmlSystemGetDriverVersion", driver_version, missing);
    find(lookup, "nvmlDeviceGetName", name, missing);
    find(lookup, "nvmlDeviceGetUUID", uuid, missing);
    find(lookup, "nvmlDeviceGetClockInfo", clock, missing);
    find(lookup, "nvmlDeviceGetMaxClockInfo", max_clock, missing);
    find(lookup, "nvmlDeviceGetTemperature", temperature, missing);
    find(lookup, "nvmlDeviceGetPowerUsage", power, missing);
    find(lookup, "nvmlDeviceGetEnforcedPowerLimit", power_limit, missing);
    find(lookup, "nvmlDeviceGetCurrentClocksThrottleReasons", throttle_reasons, missing);
    std::string not_missed;
    find(lookup, "nvmlDeviceGetComputeRunningProcesses_v3", compute_processes, not_missed);
    return missing;
  }
};

std::unique_ptr<Nvml> Nvml::open(std::string& why_not) {
  // Never closed: the library keeps threads and state of its own.
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_not = fmt::format("{} is not there", library_name);
    return nullptr;
  }
  return open([library](const char* symbol) { return dlsym(library, symbol); }, why_not);
}

std::unique_ptr<Nvml> Nvml::open(const Lookup& lookup, std::string& why_not) {
  auto functions = std::make_unique<Functions>();
  if (const std::string missing = functions->load(lookup); !missing.empty()) {
    why_not = fmt::format("{} lacks {}", library_name, missing);
    return nullptr;
  }
  if (const int status = functions->init(); status != nvml_success) {
    why_not = fmt::format("{} does not start (status {})", library_name, status);
    return nullptr;
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

void* Nvml::device(const std::string& pci_bus_id) const {
  Handle handle = nullptr;
  return functions_->handle_by_pci(pci_bus_id.c_str(), &handle) == nvml_success ? handle : nullptr;
}

Facts Nvml::card(const std::string& pci_bus_id) const {
  Facts facts;
  char text[text_bytes] = "";
  if (functions_->driver_version(text, text_bytes) == nvml_success) facts["driver"] = text;
  const Handle handle = device(pci_bus_id);
  if (handle == nullptr) return facts;
  if (functions_->name(handle, text, text_bytes) == nvml_success) facts["card"] = text;
  if (functions_->uuid(handle, text, text_bytes) == nvml_success) {
    // Tells two cards apart without telling which ones they are.
    facts["card_id"] = fmt::format("{:016x}", XXH3_64bits(text, std::char_traits<char>::length(text)));
  }
  unsigned value = 0;
  if (functions_->max_clock(handle, clock_sm, &value) == nvml_success)
    facts["sm_clock_max_mhz"] = std::to_string(value);
  if (functions_->max_clock(handle, clock_memory, &value) == nvml_success)
    facts["memory_clock_max_mhz"] = std::to_string(value);
  if (functions_->power_limit(handle, &value) == nvml_success)
    facts["power_limit_watts"] = fmt::format("{:g}", value / 1e3);
  return facts;
}

Facts Nvml::state(const std::string& pci_bus_id, const std::string& prefix) const {
  Facts facts;
  const Handle handle = device(pci_bus_id);
  if (handle == nullptr) return facts;
  unsigned value = 0;
  if (functions_->clock(handle, clock_sm, &value) == nvml_success)
    facts[prefix + "sm_clock_mhz"] = std::to_string(value);
  if (functions_->clock(handle, clock_memory, &value) == nvml_success)
    facts[prefix + "memory_clock_mhz"] = std::to_string(value);
  if (functions_->temperature(handle, sensor_gpu, &value) == nvml_success)
    facts[prefix + "temperature_celsius"] = std::to_string(value);
  if (functions_->power(handle, &value) == nvml_success)
    facts[prefix + "power_watts"] = fmt::format("{:.1f}", value / 1e3);
  unsigned long long reasons = 0;
  if (functions_->throttle_reasons(handle, &reasons) == nvml_success)
    facts[prefix + "clock_held_by"] = throttle_text(reasons);
  return facts;
}

std::optional<int> Nvml::processes(const std::string& pci_bus_id) const {
  const Handle handle = device(pci_bus_id);
  if (handle == nullptr || functions_->compute_processes == nullptr) return {};
  unsigned count = 0;  // asked with room for none, it says how many there are
  const int status = functions_->compute_processes(handle, &count, nullptr);
  if (status != nvml_success && status != nvml_insufficient_size) return {};
  return static_cast<int>(count);
}

}  // namespace attune::lab
