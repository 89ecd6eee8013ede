#include "lab/cmd/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/measure/callee.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/environment.hpp"
#include "lab/stats/summary.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

// Timing should not wait minutes for a check: beyond this work a sample of the rows is compared.
constexpr double check_all_rows_flops = 0x1p28;

// A probe that was added to a session.
struct AddedProbe {
  std::string contender;
  int threads;
  CeilingName ceiling;
  double work;
};

const Recording& recording_named(const Result& result, const std::string& name) {
  return *std::ranges::find(result.measurement.recordings, name, &Recording::name);
}

// The one that bounds first: nothing is nearer to its ceiling.
std::vector<Share> shares_in_rounds(const Problem& problem, const Recording& recording, int threads,
                                    const std::vector<std::string>& ceilings, const std::vector<AddedProbe>& probes,
                                    const Result& result) {
  std::vector<Share> shares;
  for (const AddedProbe& probe : probes)
    if (probe.threads == threads && std::ranges::find(ceilings, probe.ceiling.name) != ceilings.end())
      shares.push_back(share_in_rounds(recording, work_for(problem, probe.ceiling.name),
                                       {probe.ceiling, probe.work, &recording_named(result, probe.contender)},
                                       result.measurement.protocol.rule));
  std::ranges::stable_sort(shares, std::ranges::greater{}, &Share::estimate);
  return shares;
}

// Where several numbers of threads share rounds: what this one gains over the first, and whom it is compared with.
void compare_thread_counts(const std::vector<Entrant>& entrants, size_t at, std::vector<TimedEntrant>& timed,
                           const std::vector<std::string>& names, const Result& result) {
  if (timed[at].threads == timed.front().threads) return;
  const Recording& recording = recording_named(result, names[at]);
  const stats::VerdictRule& rule = result.measurement.protocol.rule;
  timed[at].against_first.reset();
  for (size_t i = 0; i < at; ++i) {
    const Recording& other = recording_named(result, names[i]);
    if (!timed[at].over_first_count && entrants[i].same_code(entrants[at]))
      timed[at].over_first_count = SpeedOver{timed[i].threads, round_ratio(other, recording, rule)};
    if (timed[at].against_first || timed[i].threads != timed[at].threads) continue;
    Comparison& comparison = timed[at].against_first.emplace();
    comparison.name = recording.name;
    comparison.ratios = round_ratio(recording, other, rule).by_round;
    comparison.verdict = stats::judge(comparison.ratios, {}, rule);
  }
}

}  // namespace

Timekeeper::Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin)
    : backend_(backend), threads_(threads), protocol_(std::move(protocol)), seed_(seed), twin_(twin) {
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
  const auto callee = [&] {
    if (!entrant.plugin.empty()) return plugin_callee(entrant.plugin, inputs->problem());
    if (!entrant.config.empty()) return configured_callee(entrant.name, kernel, entrant.config, inputs->problem());
    const Library library = entrant.library.empty() ? Library::own() : Library::open(entrant.library);
    return library_callee(entrant.name, library, inputs->problem(), kernel, entrant.threads);
  };
  if (gpu_) return gpu_forward_contender(callee(), inputs, *gpu_, gpu_mode_from(protocol_.mode));
  return cpu_forward_contender(callee(), inputs);
}

const Ceiling& Timekeeper::gpu_matmul() {
  if (!matmul_) matmul_ = gpu_matmul_ceiling(*gpu_);
  return *matmul_;
}

cpu::Threads& Timekeeper::threads(int count) {
  if (count == 0) return threads_;
  std::unique_ptr<cpu::Threads>& pool = pools_[count];
  if (!pool) {
    attune_options options{};
    options.struct_size = sizeof options;
    options.threads = count;
    pool = std::make_unique<cpu::Threads>(options);
  }
  return *pool;
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
    if (!gpu_) next.threads = threads(entrant.threads).size();
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
  std::vector<std::string> names;  // a plug-in has one of its own
  for (size_t i = 0; i < entrants.size(); ++i) {
    std::unique_ptr<Contender> next = contender(entrants[i], timed[i].kernel, inputs);
    names.emplace_back(next->name());
    session.add(std::move(next));
    if (i == 0 && twin_) session.add_twin(contender(entrants[i], timed[i].kernel, inputs));
  }
  std::vector<std::vector<std::string>> ceilings(entrants.size());
  std::vector<AddedProbe> probes;
  const cpu::Level* const pairs = cpu::pair_level();
  const PairUnits units =
      gpu_ ? PairUnits{} : PairUnits{cpu::amx_absence().empty(), pairs != nullptr && cpu::is_selectable(*pairs)};
  for (size_t i = 0; i < entrants.size() && !gpu_; ++i) {
    ceilings[i] = cpu_ceilings_of(parsed, timed[i].kernel, units);
    for (const std::string& ceiling : ceilings[i]) {
      const std::string name = fmt::format("{} by {}", ceiling, counted(timed[i].threads, "thread"));
      if (std::ranges::find(probes, name, &AddedProbe::contender) != probes.end()) continue;
      CpuProbe probe = cpu_probe(ceiling, threads(entrants[i].threads), name);
      probes.push_back({name, timed[i].threads, probe.ceiling, probe.work});
      session.add_probe(std::move(probe.contender), names[i]);
    }
  }
  Result measured = session.run(progress);

  result.entrants = std::move(timed);
  result.noise_floor = measured.analysis.noise_floor;
  size_t next = 0, compared = 0;
  for (size_t i = 0; i < measured.measurement.recordings.size(); ++i) {
    Recording& recording = measured.measurement.recordings[i];
    if (recording.role == Role::twin || recording.role == Role::probe) continue;
    TimedEntrant& entrant = result.entrants[next];
    if (!entrant.kernel.empty()) recording.facts["kernel"] = entrant.kernel;
    entrant.name = recording.name;
    entrant.summary = measured.analysis.summaries[i];
    entrant.rounds = recording.rounds;
    if (gpu_)
      entrant.shares = {gpu_share(gpu_matmul(), result.flops, entrant.summary.seconds)};
    else
      entrant.shares = shares_in_rounds(parsed, recording, entrant.threads, ceilings[next], probes, measured);
    if (recording.role == Role::contender) entrant.against_first = measured.analysis.comparisons[compared++];
    compare_thread_counts(entrants, next, result.entrants, names, measured);
    ++next;
  }
  for (const AddedProbe& probe : probes) {
    const double seconds = stats::median(round_seconds(recording_named(measured, probe.contender)));
    ceilings_.note(probe.ceiling, probe.threads, probe.work / seconds / 1e9);
    result.probe_work[probe.contender] = probe.work;
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
