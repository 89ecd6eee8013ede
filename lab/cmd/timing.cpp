#include "lab/cmd/timing.hpp"

#include "core/error.hpp"
#include "lab/measure/forward_contender.hpp"

namespace attune::lab {
namespace {

std::unique_ptr<Contender> make_contender(const Entrant& entrant, const std::string& kernel,
                                          const std::shared_ptr<InputSource>& inputs) {
  const attune_forward_desc desc = desc_from(inputs->problem());
  if (!entrant.plugin.empty()) return cpu_forward_contender(plugin_callee(entrant.plugin, desc), inputs);
  const Library library = entrant.library.empty() ? Library::own() : Library::open(entrant.library);
  return cpu_forward_contender(library_callee(entrant.name, library, desc, kernel), inputs);
}

}  // namespace

TimedProblem time_problem(const std::string& problem, const std::vector<Entrant>& entrants, Backend& backend,
                          cpu::Threads& threads, const TimingOptions& options, const ProgressCallback& progress) {
  TimedProblem result;
  result.problem = problem;
  const Problem parsed = parse_problem(problem);
  result.flops = useful_flops(parsed);

  std::vector<TimedEntrant> timed;
  RowPolicy rows = backend.rows;
  if (!options.check_all_rows) rows.all_rows_flops = std::min(rows.all_rows_flops, 0x1p28);
  Checker checker(*backend.executor, *backend.reference, threads, rows);
  for (const Entrant& entrant : entrants) {
    TimedEntrant& next = timed.emplace_back();
    next.name = entrant.name;
    if (!entrant.library.empty() || !entrant.plugin.empty()) continue;
    next.check = checker.check({problem, entrant.kernel, InputKind::normal, options.seed, Storage::dense, {}});
    if (!next.check.unsupported.empty()) fail(ATTUNE_UNSUPPORTED, "{}: {}", problem, next.check.unsupported);
    next.kernel = next.check.of.kernel;
    if (!next.check.ok()) {
      result.failed = next.check;
      return result;
    }
  }

  const auto inputs = std::make_shared<InputSource>(parsed, threads);
  Session session(options.protocol);
  for (size_t i = 0; i < entrants.size(); ++i) {
    session.add(make_contender(entrants[i], timed[i].kernel, inputs));
    if (i == 0 && options.twin) session.add_twin(make_contender(entrants[i], timed[i].kernel, inputs));
  }
  const Result measured = session.run(progress);

  result.entrants = std::move(timed);
  size_t next = 0, compared = 0;
  for (size_t i = 0; i < measured.measurement.recordings.size(); ++i) {
    const Recording& recording = measured.measurement.recordings[i];
    if (recording.role == Role::twin) continue;
    TimedEntrant& entrant = result.entrants[next++];
    entrant.name = recording.name;
    entrant.summary = measured.analysis.summaries[i];
    entrant.rounds = recording.rounds;
    if (recording.role == Role::contender) entrant.against_first = measured.analysis.comparisons[compared++];
  }
  result.noise_floor = measured.analysis.noise_floor;
  return result;
}

}  // namespace attune::lab
