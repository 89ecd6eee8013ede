#include "lab/cmd/timing.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/measure/callee.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/environment.hpp"

namespace attune::lab {
namespace {

// Timing should not wait minutes for a check: beyond this work a sample of the rows is compared.
constexpr double check_all_rows_flops = 0x1p28;

}  // namespace

Timekeeper::Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin)
    : backend_(backend),
      threads_(threads),
      protocol_(std::move(protocol)),
      seed_(seed),
      twin_(twin),
      ceilings_(
          [this](std::string_view name) { return gpu_ ? gpu_matmul_ceiling(*gpu_) : cpu_ceiling(threads_, name); }) {
  if (backend.executor->device_kind() == DeviceKind::cuda) {
    gpu_ = std::make_unique<CudaGpu>();
    if (protocol_.mode == "cpu") protocol_.mode = name_of(GpuMode::steady);
  }
}

Timekeeper::~Timekeeper() = default;

std::vector<Outcome> Timekeeper::check(const std::string& problem, const std::vector<Entrant>& entrants) {
  RowPolicy rows = backend_.rows;
  if (!gpu_) rows.all_rows_flops = std::min(rows.all_rows_flops, check_all_rows_flops);
  Case c;
  c.problem = problem;
  c.seed = seed_;
  std::vector<std::unique_ptr<Executor>> configured;
  std::vector<Contestant> contestants;
  for (const Entrant& entrant : entrants) {
    if (!entrant.own()) continue;
    if (!entrant.config.empty()) configured.push_back(make_cuda_executor(0, entrant.config));
    contestants.push_back({entrant.config.empty() ? backend_.executor.get() : configured.back().get(), entrant.kernel});
  }
  return Checker(*backend_.executor, *backend_.reference, threads_, rows).check(c, contestants);
}

std::unique_ptr<Contender> Timekeeper::contender(const Entrant& entrant, const std::string& kernel,
                                                 const std::shared_ptr<InputSource>& inputs) {
  const attune_forward_desc desc = desc_from(inputs->problem());
  const auto callee = [&] {
    if (!entrant.plugin.empty()) return plugin_callee(entrant.plugin, desc);
    if (!entrant.config.empty()) return configured_callee(entrant.name, kernel, entrant.config, inputs->problem());
    const Library library = entrant.library.empty() ? Library::own() : Library::open(entrant.library);
    return library_callee(entrant.name, library, desc, kernel);
  };
  if (gpu_) return gpu_forward_contender(callee(), inputs, *gpu_, gpu_mode_from(protocol_.mode));
  return cpu_forward_contender(callee(), inputs);
}

TimedProblem Timekeeper::time(const std::string& problem, const std::vector<Entrant>& entrants,
                              const ProgressCallback& progress) {
  Problem parsed = parse_problem(problem);
  parsed.device_kind = backend_.executor->device_kind();
  TimedProblem result;
  result.problem = problem;
  result.flops = useful_flops(parsed);

  const std::vector<Outcome> checks = check(problem, entrants);
  std::vector<TimedEntrant> timed;
  size_t checked = 0;
  for (const Entrant& entrant : entrants) {
    TimedEntrant& next = timed.emplace_back();
    next.name = entrant.name;
    next.config = entrant.config;
    if (!entrant.own()) continue;
    next.check = checks[checked++];
    if (!next.check.unsupported.empty()) fail(ATTUNE_UNSUPPORTED, "{}: {}", problem, next.check.unsupported);
    next.kernel = next.check.of.kernel;
    if (!next.check.ok()) {
      result.failed = next.check;
      return result;
    }
  }

  const auto inputs = std::make_shared<InputSource>(parsed, threads_);
  Session session(protocol_);
  for (size_t i = 0; i < entrants.size(); ++i) {
    session.add(contender(entrants[i], timed[i].kernel, inputs));
    if (i == 0 && twin_) session.add_twin(contender(entrants[i], timed[i].kernel, inputs));
  }
  Result measured = session.run(progress);

  result.entrants = std::move(timed);
  result.noise_floor = measured.analysis.noise_floor;
  size_t next = 0, compared = 0;
  for (size_t i = 0; i < measured.measurement.recordings.size(); ++i) {
    Recording& recording = measured.measurement.recordings[i];
    if (recording.role == Role::twin) continue;
    TimedEntrant& entrant = result.entrants[next++];
    if (!entrant.kernel.empty()) recording.facts["kernel"] = entrant.kernel;
    entrant.name = recording.name;
    entrant.summary = measured.analysis.summaries[i];
    entrant.rounds = recording.rounds;
    entrant.bound = bound_of(parsed, entrant.kernel, ceilings_);
    if (recording.role == Role::contender) entrant.against_first = measured.analysis.comparisons[compared++];
  }
  result.result = std::move(measured);
  return result;
}

Facts Timekeeper::environment() const {
  Facts facts = host_facts();
  if (gpu_) facts.merge(gpu_->facts());
  return facts;
}

}  // namespace attune::lab
