// What a machine can do at most, measured by the engine like everything else: the ceilings that shares of peak refer
// to, and what `attune doctor` shows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu/threads.hpp"
#include "jit/compile.hpp"
#include "jit/unit.hpp"
#include "lab/measure/cuda_gpu.hpp"
#include "lab/measure/engine.hpp"

namespace attune::lab {

struct Ceiling {
  std::string name;  // "matmul", "read", "read_l2", "exp2", "launch"; "fma", "pairs", "amx", "read"
  std::string about;
  std::string unit;
  double value = 0;
  double lower = 0, upper = 0;  // the ends of its interval
  double clock_hz = 0;          // meanwhile; 0: not known
  std::optional<double> share;  // of what that clock allows
  std::string absence;          // why there is no figure; "" if there is one
};

struct CeilingName {
  const char *name, *about, *unit;
};

// How ceilings are measured: fewer rounds than a comparison needs.
Protocol ceiling_protocol();

// All of them, in the order of the names above. `say` is told which comes next.
using CeilingProgress = std::function<void(std::string_view name)>;
std::vector<Ceiling> gpu_ceilings(CudaGpu& gpu, const CeilingProgress& say);
std::vector<Ceiling> cpu_ceilings(cpu::Threads& threads, const CeilingProgress& say);

// One alone: 16-bit products by the tensor cores (Hopper); that of a CPU with this name.
Ceiling gpu_matmul_ceiling(CudaGpu& gpu);
Ceiling cpu_ceiling(cpu::Threads& threads, std::string_view name);

// What measures a ceiling of a CPU, to be put into the rounds of a kernel that the ceiling bounds. Throws
// ATTUNE_UNSUPPORTED for what the machine does not have. `threads` must outlive it; `name` is the contender's.
struct CpuProbe {
  CeilingName ceiling;
  double work = 0;  // of a call: operations, or bytes
  std::unique_ptr<Contender> contender;
};
CpuProbe cpu_probe(std::string_view ceiling, cpu::Threads& threads, std::string name);
CeilingName cpu_ceiling_name(std::string_view ceiling);  // throws ATTUNE_INVALID_ARGUMENT for an unknown one

// Two copies of one contender in the same rounds: what the engine sees where nothing differs.
NoiseFloor gpu_noise_floor(CudaGpu& gpu);
NoiseFloor cpu_noise_floor(cpu::Threads& threads);

// The probes of lab/measure/probes as they are compiled, and their compilation: for tests without a GPU.
std::vector<jit::DeviceUnit> probe_units();
jit::Compiled compile_probe(const jit::DeviceUnit& unit, const std::string& arch);

}  // namespace attune::lab
