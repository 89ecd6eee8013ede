// The ceilings of a CPU.
#include <atomic>
#include <functional>
#include <memory>
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

// Of a call and thread, below a millisecond: short enough to fall between disturbances, long enough to hide the start
// of threads. In several parts, so that a fast thread takes over from a slow one, as it does in the kernels.
constexpr int64_t parts_per_thread = 4;
constexpr int64_t fma_rounds = (1 << 16) / parts_per_thread, amx_rounds = (1 << 14) / parts_per_thread;
// What a call reads, and after how many calls the same is read again. There are L3 caches of 300 MiB: where each call
// read the same 256 MiB, they came from there in part, up to 1.4 times as fast as from memory.
constexpr int64_t read_floats = int64_t{64} << 20, read_calls = 4;

constexpr CeilingName fma{"fma", "float32 multiply-adds in registers", "GFLOP/s"};
constexpr CeilingName pairs{"pairs", "products of bf16 pairs in registers", "GFLOP/s"};
constexpr CeilingName amx{"amx", "products of bf16 tiles", "GFLOP/s"};
constexpr CeilingName read{"read", "memory, 1 GiB", "GB/s"};

struct ReadArray {
  std::unique_ptr<float[]> values;
  std::atomic<int64_t> calls{0};
};

// One for all probes there are at a time: those of several numbers of threads share rounds.
std::shared_ptr<ReadArray> read_array(cpu::Threads& threads) {
  static std::weak_ptr<ReadArray> last;
  if (auto living = last.lock()) return living;
  const auto array = std::make_shared<ReadArray>();
  array->values = std::make_unique_for_overwrite<float[]>(read_calls * read_floats);
  constexpr int64_t part = 1 << 20;
  threads.parallel_for(read_calls * read_floats / part, [&](int64_t index) {
    for (int64_t i = index * part; i < (index + 1) * part; ++i)
      array->values[i] = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(i) * 0x9e3779b9u));
  });
  last = array;
  return array;
}

// `part` gets 0..parts-1.
CpuProbe probe_of(const CeilingName& ceiling, std::string name, cpu::Threads& threads, double work_of_part,
                  std::function<void(int64_t)> part) {
  const int64_t parts = parts_per_thread * threads.size();
  return {ceiling, work_of_part * static_cast<double>(parts),
          std::make_unique<CpuContender>(
              std::move(name), [&threads, parts, part = std::move(part)] { threads.parallel_for(parts, part); })};
}

CpuProbe fma_probe(std::string name, cpu::Threads& threads) {
  // Found once: a virtual machine takes microseconds to say what its processor can do.
  const auto multiply_add = cpu::best_level().multiply_add;
  return probe_of(fma, std::move(name), threads, multiply_add(fma_rounds),
                  [multiply_add](int64_t) { multiply_add(fma_rounds); });
}

constexpr const char* no_pairs = "no level that multiplies pairs of bf16 in vectors can be used here";

CpuProbe pairs_probe(std::string name, cpu::Threads& threads) {
  const cpu::Level* const level = cpu::pair_level();
  if (level == nullptr) fail(ATTUNE_UNSUPPORTED, "probe of pairs: {}", no_pairs);
  return probe_of(pairs, std::move(name), threads, level->multiply_pairs(fma_rounds),
                  [multiply = level->multiply_pairs](int64_t) { multiply(fma_rounds); });
}

CpuProbe amx_probe(std::string name, cpu::Threads& threads) {
  if (const std::string& why = cpu::amx_absence(); !why.empty()) fail(ATTUNE_UNSUPPORTED, "probe of amx: {}", why);
  return probe_of(amx, std::move(name), threads, multiply_amx_tiles(amx_rounds),
                  [](int64_t) { multiply_amx_tiles(amx_rounds); });
}

CpuProbe read_probe(std::string name, cpu::Threads& threads) {
  const int64_t parts = parts_per_thread * threads.size(), floats = read_floats / parts;
  const auto used = std::make_shared<std::atomic<float>>(0.f);  // keeps the sums from being removed
  const auto call = [&threads, parts, floats, used, sum = cpu::best_level().sum, array = read_array(threads)] {
    const float* const from = array->values.get() + array->calls++ % read_calls * read_floats;
    threads.parallel_for(parts,
                         [&](int64_t i) { used->store(sum(from + i * floats, floats), std::memory_order_relaxed); });
  };
  return {read, static_cast<double>(floats * parts) * sizeof(float),
          std::make_unique<CpuContender>(std::move(name), call)};
}

}  // namespace

CeilingName cpu_ceiling_name(std::string_view ceiling) {
  for (const CeilingName& known : {fma, pairs, amx, read})
    if (ceiling == known.name) return known;
  fail(ATTUNE_INVALID_ARGUMENT, "a CPU has no ceiling '{}'; fma, pairs, amx and read are known", ceiling);
}

CpuProbe cpu_probe(std::string_view ceiling, cpu::Threads& threads, std::string name) {
  const std::string_view known = cpu_ceiling_name(ceiling).name;
  if (known == fma.name) return fma_probe(std::move(name), threads);
  if (known == pairs.name) return pairs_probe(std::move(name), threads);
  if (known == amx.name) return amx_probe(std::move(name), threads);
  return read_probe(std::move(name), threads);
}

Ceiling cpu_ceiling(cpu::Threads& threads, std::string_view name) {
  if (name == pairs.name && cpu::pair_level() == nullptr) return absent(pairs, no_pairs);
  if (name == amx.name && !cpu::amx_absence().empty()) return absent(amx, cpu::amx_absence());
  CpuProbe probe = cpu_probe(name, threads, std::string(name));
  return fastest_of(probe.ceiling, std::move(probe.contender),
                    [work = probe.work](double seconds) { return work / seconds / 1e9; });
}

std::vector<Ceiling> cpu_ceilings(cpu::Threads& threads, const CeilingProgress& say) {
  std::vector<Ceiling> ceilings;
  for (const char* name : {fma.name, pairs.name, amx.name, read.name}) {
    say(name);
    ceilings.push_back(cpu_ceiling(threads, name));
  }
  return ceilings;
}

NoiseFloor cpu_noise_floor(cpu::Threads& threads) {
  return noise_floor_of("cpu", [&] { return fma_probe("fma", threads).contender; });
}

}  // namespace attune::lab
