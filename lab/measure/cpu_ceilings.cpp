// The ceilings of a CPU.
#include <atomic>
#include <vector>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "lab/measure/ceiling_of.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/cpu_contender.hpp"
#include "lab/measure/probes/amx.hpp"

namespace attune::lab {
namespace {

// Below a millisecond on one core: short enough to fall between disturbances, long enough to hide the start of threads.
constexpr int64_t fma_rounds = 1 << 16, amx_rounds = 1 << 14;
constexpr int64_t read_floats = int64_t{256} << 18;  // 256 MiB

std::unique_ptr<Contender> on_every_thread(const char* name, cpu::Threads& threads, std::function<void(int64_t)> work) {
  return std::make_unique<CpuContender>(
      name, [&threads, work = std::move(work)] { threads.parallel_for(threads.size(), work); });
}

std::unique_ptr<Contender> fma_probe(cpu::Threads& threads) {
  return on_every_thread("fma", threads, [](int64_t) { cpu::best_level().multiply_add(fma_rounds); });
}

Ceiling fma_ceiling(cpu::Threads& threads) {
  const double operations = cpu::best_level().multiply_add(fma_rounds) * threads.size();
  return fastest_of({"fma", "float32 multiply-adds in registers", "GFLOP/s"}, fma_probe(threads),
                    [&](double seconds) { return operations / seconds / 1e9; });
}

Ceiling amx_ceiling(cpu::Threads& threads) {
  const CeilingName name{"amx", "products of bf16 tiles", "GFLOP/s"};
  if (const std::string& why = cpu::amx_absence(); !why.empty()) return absent(name, why);
  const double operations = multiply_amx_tiles(1) * static_cast<double>(amx_rounds) * threads.size();
  return fastest_of(name, on_every_thread("amx", threads, [](int64_t) { multiply_amx_tiles(amx_rounds); }),
                    [&](double seconds) { return operations / seconds / 1e9; });
}

Ceiling read_ceiling(cpu::Threads& threads) {
  const std::vector<float> data(static_cast<size_t>(read_floats), 1.5f);
  const int64_t share = read_floats / threads.size();
  std::atomic<float> used{0};  // keeps the sums from being removed
  const auto work = [&](int64_t i) {
    used.store(cpu::best_level().sum(data.data() + i * share, share), std::memory_order_relaxed);
  };
  const double bytes = static_cast<double>(share) * threads.size() * sizeof(float);
  return fastest_of({"read", "memory, 256 MiB", "GB/s"}, on_every_thread("read", threads, work),
                    [&](double seconds) { return bytes / seconds / 1e9; });
}

}  // namespace

Ceiling cpu_ceiling(cpu::Threads& threads, std::string_view name) {
  if (name == "fma") return fma_ceiling(threads);
  if (name == "amx") return amx_ceiling(threads);
  if (name == "read") return read_ceiling(threads);
  fail(ATTUNE_INVALID_ARGUMENT, "a CPU has no ceiling '{}'; fma, amx and read are known", name);
}

std::vector<Ceiling> cpu_ceilings(cpu::Threads& threads, const CeilingProgress& say) {
  std::vector<Ceiling> ceilings;
  for (const char* name : {"fma", "amx", "read"}) {
    say(name);
    ceilings.push_back(cpu_ceiling(threads, name));
  }
  return ceilings;
}

NoiseFloor cpu_noise_floor(cpu::Threads& threads) {
  return noise_floor_of("cpu", [&] { return fma_probe(threads); });
}

}  // namespace attune::lab
