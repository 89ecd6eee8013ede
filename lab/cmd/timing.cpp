#include "lab/cmd/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "core/error.hpp"
#include "cpu/amx_absence.hpp"
#include "cpu/isa.hpp"
#include "lab/check/cuda_backend.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/environment.hpp"
#include "lab/stats/summary.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

// Timing should not wait minutes for a check: beyond this work a sample of the rows is compared.
constexpr double check_all_rows_flops = 0x1p28;

// On a GPU entrants are judged together: starting a process and its CUDA takes longer than the check, and nothing is
// timed yet. A CPU's checks take all of it.
constexpr size_t judged_at_once = 8;

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
void compare_thread_counts(const std::vector<const Entrant*>& entrants, size_t at, std::vector<TimedEntrant>& timed,
                           const std::vector<std::string>& names, const Result& result) {
  if (timed[at].threads == timed.front().threads) return;
  const Recording& recording = recording_named(result, names[at]);
  const stats::VerdictRule& rule = result.measurement.protocol.rule;
  timed[at].against_first.reset();
  for (size_t i = 0; i < at; ++i) {
    const Recording& other = recording_named(result, names[i]);
    if (!timed[at].over_first_count && entrants[i]->same_code(*entrants[at]))
      timed[at].over_first_count = SpeedOver{timed[i].threads, round_ratio(other, recording, rule)};
    if (timed[at].against_first || timed[i].threads != timed[at].threads) continue;
    Comparison& comparison = timed[at].against_first.emplace();
    comparison.name = recording.name;
    comparison.ratios = round_ratio(recording, other, rule).by_round;
    comparison.verdict = stats::judge(comparison.ratios, {}, rule);
  }
}

PairUnits units_of_this_cpu() {
  const cpu::Level* const pairs = cpu::pair_level();
  return {cpu::amx_absence().empty(), pairs != nullptr && cpu::is_selectable(*pairs)};
}

// The names that tables use: a plug-in's own, with its file where two have the same.
void name_apart(std::vector<Entrant*> entrants) {
  for (const Entrant* entrant : entrants) {
    const std::string name = entrant->name;
    if (std::ranges::count(entrants, name, &Entrant::name) < 2) continue;
    for (Entrant* alike : entrants)
      if (alike->name == name && !alike->plugin.empty()) alike->name += fmt::format(" ({})", alike->plugin);
  }
}

bool all_own(const std::vector<Entrant>& entrants) { return std::ranges::all_of(entrants, &Entrant::own); }

}  // namespace

std::string_view name_of(NotTimed::Kind kind) {
  constexpr std::array names{"wrong", "refused", "lost"};
  return names[static_cast<size_t>(kind)];
}

Timekeeper::Timekeeper(Backend& backend, cpu::Threads& threads, Protocol protocol, uint64_t seed, bool twin,
                       TrialOptions trials)
    : backend_(backend),
      threads_(threads),
      protocol_(std::move(protocol)),
      seed_(seed),
      twin_(twin),
      gpu_(backend.executor->device_kind() == DeviceKind::cuda ? std::make_unique<CudaGpu>() : nullptr),
      trials_(std::move(trials), gpu_ != nullptr) {
  if (gpu_ && protocol_.mode == "cpu") protocol_.mode = name_of(GpuMode::steady);
}

Timekeeper::~Timekeeper() = default;

std::vector<Outcome> Timekeeper::check_own(const Case& what, const std::vector<Entrant>& entrants) {
  RowPolicy rows = backend_.rows;
  if (!gpu_) rows.all_rows_flops = std::min(rows.all_rows_flops, check_all_rows_flops);
  std::vector<std::unique_ptr<Executor>> configured;
  std::vector<Contestant> contestants;
  for (const Entrant& entrant : entrants) {
    if (!entrant.own()) continue;
    if (!entrant.config.empty()) configured.push_back(make_cuda_executor(0, entrant.config));
    contestants.push_back({entrant.config.empty() ? backend_.executor.get() : configured.back().get(), entrant.kernel});
  }
  if (contestants.empty()) return {};
  return Checker(*backend_.executor, *backend_.reference, threads_, rows).check(what, contestants);
}

std::vector<Timekeeper::Candidate> Timekeeper::judge(const std::string& problem, const std::vector<Entrant>& entrants,
                                                     const ProgressCallback& progress,
                                                     std::vector<NotTimed>& not_timed) {
  Case what;
  what.problem = problem;
  what.seed = seed_;
  std::vector<const Entrant*> outside;
  std::vector<nlohmann::json> jobs;
  for (const Entrant& entrant : entrants) {
    if (entrant.own()) continue;
    outside.push_back(&entrant);
    jobs.push_back(to_json(CheckJob{backend_.name, entrant, {what}, 0, check_all_rows_flops}));
  }
  std::vector<Outcome> own;
  const std::vector<TrialAnswer> answers = trials_.run_all(
      jobs, gpu_ ? judged_at_once : 1, [&] { own = check_own(what, entrants); },
      [&](size_t job, const AtWork&) {
        if (progress) progress({Progress::Phase::prepare, outside[job]->name});
      });
  std::vector<Candidate> candidates;
  size_t own_checked = 0, answered = 0;
  for (Entrant entrant : entrants) {
    Outcome outcome;
    if (entrant.own()) {
      outcome = own[own_checked++];
      entrant.kernel = outcome.of.kernel;
    } else {
      const TrialAnswer& answer = answers[answered++];
      if (!answer.done) {
        not_timed.push_back({entrant, NotTimed::Kind::lost, answer.lost, Outcome{what, {}, {}, {}, {}}});
        continue;
      }
      outcome = answer.outcomes.front();
      if (entrant.name.empty() || entrant.name == entrant.plugin) entrant.name = outcome.of.kernel;
    }
    outcome.of.option = entrant.option();
    if (!outcome.unsupported.empty())
      not_timed.push_back({entrant, NotTimed::Kind::refused, outcome.unsupported, outcome});
    else if (!outcome.ok())
      not_timed.push_back({entrant, NotTimed::Kind::wrong, outcome.judgement.failure, outcome});
    else
      candidates.push_back({entrant, outcome});
  }
  return candidates;
}

const Ceiling& Timekeeper::gpu_matmul() {
  if (!matmul_) matmul_ = gpu_matmul_ceiling(*gpu_);
  return *matmul_;
}

std::vector<std::vector<std::string>> Timekeeper::ceilings_of(const Problem& parsed,
                                                              const std::vector<Candidate>& candidates) const {
  std::vector<std::vector<std::string>> ceilings;
  if (gpu_) return ceilings;
  for (const Candidate& candidate : candidates)
    ceilings.push_back(
        cpu_ceilings_of(parsed, candidate.entrant.own() ? candidate.entrant.kernel : "", units_of_this_cpu()));
  return ceilings;
}

std::optional<Rounds> Timekeeper::measure(const Problem& parsed, const std::string& problem,
                                          std::vector<Candidate>& candidates, const ProgressCallback& progress,
                                          std::vector<NotTimed>& not_timed) {
  while (!candidates.empty()) {
    std::vector<Entrant> entrants;
    for (const Candidate& candidate : candidates) entrants.push_back(candidate.entrant);
    const auto ceilings = ceilings_of(parsed, candidates);
    if (all_own(entrants))
      return run_rounds(
          {parsed, entrants, ceilings, protocol_, twin_}, gpu_.get(), pools_, [](std::optional<size_t>) {}, progress);
    const RoundsJob job{backend_.name, problem, entrants, ceilings, protocol_, twin_};
    TrialAnswer answer = trials_.run(to_json(job), [&](const AtWork& now) {
      if (progress && !now.contender.empty())
        progress({Progress::Phase::rounds, now.contender, now.round, protocol_.rounds});
    });
    if (answer.rounds) return std::move(answer.rounds);
    if (answer.at < 0)
      throw Error(answer.status.value_or(ATTUNE_INTERNAL_ERROR), fmt::format("timing '{}': {}", problem, answer.lost));
    const auto lost = candidates.begin() + answer.at;
    not_timed.push_back({lost->entrant, NotTimed::Kind::lost, answer.lost + ", while it was timed", lost->check});
    candidates.erase(lost);
  }
  return std::nullopt;
}

TimedProblem Timekeeper::time(const std::string& problem, const std::vector<Entrant>& entrants,
                              const ProgressCallback& progress) {
  Problem parsed = parse_problem(problem);
  parsed.device_kind = backend_.executor->device_kind();
  TimedProblem result;
  result.problem = problem;
  result.flops = useful_flops(parsed);
  std::vector<Candidate> candidates = judge(problem, entrants, progress, result.not_timed);
  std::vector<Entrant*> named;
  for (Candidate& candidate : candidates) named.push_back(&candidate.entrant);
  name_apart(named);
  if (std::optional<Rounds> rounds = measure(parsed, problem, candidates, progress, result.not_timed))
    conclude(parsed, candidates, std::move(*rounds), result);
  return result;
}

void Timekeeper::conclude(const Problem& parsed, const std::vector<Candidate>& candidates, Rounds rounds,
                          TimedProblem& result) {
  Result measured{std::move(rounds.measurement), {}};
  measured.analysis = analyse(measured.measurement);
  result.noise_floor = measured.analysis.noise_floor;
  const auto ceilings = ceilings_of(parsed, candidates);
  std::vector<const Entrant*> entrants;
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) {
    entrants.push_back(&candidate.entrant);
    names.push_back(candidate.entrant.name);
    TimedEntrant& next = result.entrants.emplace_back();
    next.name = candidate.entrant.name;
    next.config = candidate.entrant.config;
    next.kernel = candidate.entrant.own() ? candidate.entrant.kernel : "";
    next.check = candidate.check;
    if (!gpu_) next.threads = pools_.of(candidate.entrant.threads).size();
  }
  size_t next = 0, compared = 0;
  for (size_t i = 0; i < measured.measurement.recordings.size(); ++i) {
    Recording& recording = measured.measurement.recordings[i];
    if (recording.role == Role::twin || recording.role == Role::probe) continue;
    TimedEntrant& entrant = result.entrants[next];
    if (!entrant.kernel.empty()) recording.facts["kernel"] = entrant.kernel;
    entrant.summary = measured.analysis.summaries[i];
    entrant.rounds = recording.rounds;
    if (gpu_)
      entrant.shares = {gpu_share(gpu_matmul(), result.flops, entrant.summary.seconds)};
    else
      entrant.shares = shares_in_rounds(parsed, recording, entrant.threads, ceilings[next], rounds.probes, measured);
    entrant.alarm = ceiling_alarm(entrant.share(), parsed, entrant.kernel, units_of_this_cpu());
    if (recording.role == Role::contender) entrant.against_first = measured.analysis.comparisons[compared++];
    compare_thread_counts(entrants, next, result.entrants, names, measured);
    if (entrant.against_first) {
      stats::Verdict& verdict = entrant.against_first->verdict;
      const stats::Outcome before = verdict.outcome;
      verdict = within_noise(verdict, result.noise_floor, measured.measurement.protocol.rule);
      entrant.drowned = verdict.outcome != before;
    }
    ++next;
  }
  for (const AddedProbe& probe : rounds.probes) {
    const double seconds = stats::median(round_seconds(recording_named(measured, probe.contender)));
    ceilings_.note(probe.ceiling, probe.threads, probe.work / seconds / 1e9);
    result.probe_work[probe.contender] = probe.work;
  }
  result.result = std::move(measured);
}

Facts Timekeeper::environment() const {
  Facts facts = host_facts();
  if (gpu_) facts.merge(gpu_->facts());
  return facts;
}

}  // namespace attune::lab
