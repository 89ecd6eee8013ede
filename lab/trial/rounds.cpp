#include "lab/trial/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/measure/forward_contender.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/text.hpp"

namespace attune::lab {

cpu::Threads& ThreadPools::of(int count) {
  if (count == 0) return own_;
  std::unique_ptr<cpu::Threads>& pool = pools_[count];
  if (!pool) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = count;
    pool = std::make_unique<cpu::Threads>(options);
  }
  return *pool;
}

nlohmann::json to_json(const Rounds& rounds) {
  nlohmann::json probes = nlohmann::json::array();
  for (const AddedProbe& probe : rounds.probes)
    probes.push_back({{"contender", probe.contender},
                      {"threads", probe.threads},
                      {"ceiling", probe.ceiling.name},
                      {"work", probe.work}});
  return {{"measurement", to_json(rounds.measurement)}, {"probes", probes}};
}

Rounds rounds_from_json(const nlohmann::json& json) {
  Rounds rounds;
  rounds.measurement = measurement_from_json(json.at("measurement"));
  for (const nlohmann::json& probe : json.at("probes"))
    rounds.probes.push_back({probe.at("contender"), probe.at("threads"),
                             cpu_ceiling_name(probe.at("ceiling").get<std::string>()), probe.at("work")});
  return rounds;
}

Rounds run_rounds(const RoundsRequest& request, Gpu* gpu, ThreadPools& pools, const Making& making,
                  const ProgressCallback& progress) {
  const auto inputs = std::make_shared<InputSource>(request.problem, pools.of(0));
  const auto contender = [&](const Entrant& entrant) {
    std::unique_ptr<Callee> callee = callee_of(entrant, request.problem);
    if (gpu == nullptr) return cpu_forward_contender(std::move(callee), inputs);
    return gpu_forward_contender(std::move(callee), inputs, *gpu, gpu_mode_from(request.protocol.mode));
  };
  Session session(request.protocol);
  for (size_t i = 0; i < request.entrants.size(); ++i) {
    making(i);
    session.add(contender(request.entrants[i]));
    if (i == 0 && request.twin) session.add_twin(contender(request.entrants[i]));
  }
  making(std::nullopt);
  Rounds rounds;
  for (size_t i = 0; i < request.ceilings.size(); ++i) {
    cpu::Threads& threads = pools.of(request.entrants[i].threads);
    for (const std::string& ceiling : request.ceilings[i]) {
      const std::string name = fmt::format("{} by {}", ceiling, counted(threads.size(), "thread"));
      if (std::ranges::find(rounds.probes, name, &AddedProbe::contender) != rounds.probes.end()) continue;
      CpuProbe probe = cpu_probe(ceiling, threads, name);
      rounds.probes.push_back({name, threads.size(), probe.ceiling, probe.work});
      session.add_probe(std::move(probe.contender), request.entrants[i].name);
    }
  }
  rounds.measurement = session.run(progress).measurement;
  return rounds;
}

}  // namespace attune::lab
