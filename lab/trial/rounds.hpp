// One problem measured: entrants, a second copy of the first one, and on a CPU the probes of the ceilings that may
// bound them, in the rounds of one process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/measure/ceilings.hpp"
#include "lab/measure/engine.hpp"
#include "lab/measure/gpu.hpp"
#include "lab/trial/entrant.hpp"

namespace attune::lab {

// Pools of threads by their size, made when first asked for.
class ThreadPools {
 public:
  explicit ThreadPools(cpu::Threads& own) : own_(own) {}
  cpu::Threads& of(int count);  // 0: the lab's own

 private:
  cpu::Threads& own_;
  std::map<int, std::unique_ptr<cpu::Threads>> pools_;
};

struct AddedProbe {
  std::string contender;
  int threads = 0;
  CeilingName ceiling{};
  double work = 0;  // of a call
};

struct Rounds {
  Measurement measurement;
  std::vector<AddedProbe> probes;
};
nlohmann::json to_json(const Rounds& rounds);
Rounds rounds_from_json(const nlohmann::json& json);

struct RoundsRequest {
  Problem problem;
  std::vector<Entrant> entrants;                   // of different names; the kernels of this library are named
  std::vector<std::vector<std::string>> ceilings;  // that may bound each; on a GPU empty
  Protocol protocol;
  bool twin = false;
};

// Told which entrant is about to be made; none: probes, which no entrant is to blame for.
using Making = std::function<void(std::optional<size_t>)>;

// `gpu`: nullptr on the CPU.
Rounds run_rounds(const RoundsRequest& request, Gpu* gpu, ThreadPools& pools, const Making& making,
                  const ProgressCallback& progress);

}  // namespace attune::lab
