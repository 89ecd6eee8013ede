// What the card says about itself, read through NVIDIA's management library (loaded by dlopen). Read-only: clocks,
// power limits and modes are never touched, and nothing here can touch them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lab/measure/contender.hpp"

namespace attune::lab {

class Nvml {
 public:
  // Finds an entry point by name, nullptr if there is none. Tests bring their own.
  using Lookup = std::function<void*(const char*)>;

  // nullptr, and a clause in `why_not`, where the library is missing or does not start.
  static std::unique_ptr<Nvml> open(std::string& why_not);
  static std::unique_ptr<Nvml> open(const Lookup& lookup, std::string& why_not);

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  // What does not change: name, hash of the UUID, driver, highest clocks, power limit. `pci_bus_id` as
  // cuDeviceGetPCIBusId writes it. A fact the card does not tell is left out.
  Facts card(const std::string& pci_bus_id) const;

  // What does: clocks, temperature, power, and why the clock is held down, if it is. Keys begin with `prefix`.
  Facts state(const std::string& pci_bus_id, const std::string& prefix) const;

  // How many processes compute on the card, this one among them if it does; nothing where the card does not tell.
  std::optional<int> processes(const std::string& pci_bus_id) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);

  void* device(const std::string& pci_bus_id) const;

  std::unique_ptr<Functions> functions_;
};

}  // namespace attune::lab
