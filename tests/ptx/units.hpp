// Every test kernel of this folder, as it is compiled.
#pragma once

#include <regex>
#include <vector>

#include "jit/source.hpp"
#include "jit/unit.hpp"
#include "tests/ptx/cluster.cuh"
#include "tests/ptx/sync.cuh"
#include "tests/ptx/tma.cuh"
#include "tests/ptx/warp.cuh"
#include "tests/ptx/wgmma.cuh"

namespace attune::ptx {

template <typename Params>
jit::DeviceUnit unit_of(const std::string& name, uint32_t threads) {
  jit::DeviceUnit unit;
  unit.name = "test/" + name;
  unit.file = "tests/ptx/" + name + ".cuh";
  unit.scope = "attune::device::test_" + name;
  unit.layout = {ATTUNE_SIZE_FACT(Params)};
  unit.params_bytes = sizeof(Params);
  unit.threads = threads;
  return unit;
}

// The n for which there is a wgmma.
inline std::vector<int> wgmma_widths() {
  const std::string text = jit::Sources::from_environment().read("kernels/common/wgmma.cuh");
  const std::regex specialisation("\nATTUNE_WGMMA\\(([0-9]+),");
  std::vector<int> widths;
  for (std::sregex_iterator match(text.begin(), text.end(), specialisation), end; match != end; ++match)
    widths.push_back(std::stoi((*match)[1]));
  return widths;
}

inline jit::DeviceUnit wgmma_unit(int n, device::Major a_major) {
  jit::DeviceUnit unit = unit_of<device::test_wgmma::Params>("wgmma", 128);
  unit.variant =
      jit::Initializer().add("n", n).add_text("a_major", a_major == device::Major::k ? "Major::k" : "Major::mn").text();
  unit.smem_bytes = static_cast<uint32_t>(device::test_wgmma::shared_bytes(n));
  return unit;
}

inline jit::DeviceUnit warp_unit() { return unit_of<device::test_warp::Params>("warp", 32); }

inline jit::DeviceUnit tma_unit(uint32_t ctas_per_cluster = 1) {
  jit::DeviceUnit unit = unit_of<device::test_tma::Params>("tma", 128);
  unit.smem_bytes = sizeof(device::test_tma::SharedStorage);
  unit.cluster = {ctas_per_cluster, 1, 1};
  return unit;
}

inline jit::DeviceUnit sync_unit() { return unit_of<device::test_sync::Params>("sync", device::test_sync::threads); }

inline jit::DeviceUnit cluster_unit() {
  jit::DeviceUnit unit = unit_of<device::test_cluster::Params>("cluster", device::test_cluster::threads);
  unit.cluster = {device::test_cluster::ctas, 1, 1};
  return unit;
}

inline std::vector<jit::DeviceUnit> all_units() {
  std::vector<jit::DeviceUnit> units = {warp_unit(), tma_unit(), sync_unit(), cluster_unit(),
                                        wgmma_unit(64, device::Major::mn)};
  for (const int n : wgmma_widths()) units.push_back(wgmma_unit(n, device::Major::k));
  return units;
}

}  // namespace attune::ptx
