// attune guard: is this build slower than the one before? Against another library in the same rounds, against a stored
// baseline, or as a replay of a record of evidence.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/evidence/record.hpp"
#include "lab/guard/baseline.hpp"
#include "lab/guard/judge.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

// Short turns and many rounds: contenders in turns of one or two batches share a clock, where each has a clock of its
// own in longer ones (docs/measuring.md), and the interval over rounds narrows with their number.
Protocol guard_protocol() {
  Protocol protocol;
  protocol.rounds = 31;
  protocol.samples = 2;
  protocol.budget_seconds = 2;
  return protocol;
}

struct GuardOptions {
  ProblemArguments problems;
  std::string against, library, baseline, replay, save, policy, backend;
  double planted = 0;  // of a replay: slower by this share
  Protocol protocol = guard_protocol();
  TrialOptions trials;
  bool json = false;
};

GuardPolicy policy_of(const GuardOptions& options) {
  return options.policy.empty() ? default_guard_policy()
                                : read_guard_policy(text_of_file(options.policy), options.policy);
}

nlohmann::json json_of(const Slowdown& slowdown) {
  return {{"verdict", name_of(slowdown.verdict)},   {"ratio", slowdown.estimate},
          {"ratio_lo", slowdown.interval.lower},    {"ratio_hi", slowdown.interval.upper},
          {"coverage", slowdown.interval.coverage}, {"margin", slowdown.margin}};
}

int exit_status_of(GuardVerdict verdict) {
  if (verdict == GuardVerdict::slower) return exit_failed_check;
  return verdict == GuardVerdict::unclear ? exit_unclear : exit_ok;
}

std::string ratio_text(const Slowdown& slowdown) {
  return fmt::format("{:.4f} [{:.4f}, {:.4f}]", slowdown.estimate, slowdown.interval.lower, slowdown.interval.upper);
}

void print_report(const GuardReport& report, const GuardPolicy& policy, bool json) {
  const GuardVerdict verdict = report.verdict(policy);
  if (json) {
    for (const GuardedRow& row : report.rows) {
      nlohmann::json line = json_of(row.slowdown);
      line["problem"] = row.problem;
      line["in"] = row.in_cycles ? "cycles" : "time";
      line["before_us"] = row.seconds_before * 1e6;
      line["after_us"] = row.seconds_after * 1e6;
      print_json(line);
    }
    nlohmann::json line{{"guard", name_of(verdict)}, {"rows", report.rows.size()}};
    if (report.set) line["set"] = json_of(*report.set);
    print_json(line);
    return;
  }
  using Align = Table::Align;
  Table table({{"problem"},
               {"before", Align::right},
               {"after", Align::right},
               {"in"},
               {"after over before", Align::right},
               {"margin", Align::right},
               {"verdict"}});
  for (const GuardedRow& row : report.rows)
    table.add({row.problem, duration_text(row.seconds_before), duration_text(row.seconds_after),
               row.in_cycles ? "cycles" : "time", ratio_text(row.slowdown),
               fmt::format("{:g} %", 100 * row.slowdown.margin), std::string(name_of(row.slowdown.verdict))});
  fmt::print("{}", table.text());
  if (report.set)
    fmt::print("geometric mean in time: {}, margin {:g} %: {}\n", ratio_text(*report.set), 100 * report.set->margin,
               name_of(report.set->verdict));
  for (const GuardedRow& row : report.rows)
    if (const GuardException* exception = policy.exception_for(row.problem); exception != nullptr)
      fmt::print("margin of its own: {}: {}\n", row.problem, exception->reason);
  fmt::print("{}: {} hold, {} slower, {} unclear\n", name_of(verdict),
             counted(report.count(GuardVerdict::holds), "row"), report.count(GuardVerdict::slower),
             report.count(GuardVerdict::unclear));
}

// The two copies of a record's baseline, which are the same code: the guard must let them pass.
int replay(const GuardOptions& options, const GuardPolicy& policy) {
  const nlohmann::json record = load_record(options.replay);
  if (record.at("kind") != "speed") fail(ATTUNE_INVALID_ARGUMENT, "--replay {}: is no record of speed", options.replay);
  std::vector<GuardedRow> rows;
  for (const nlohmann::json& result : record.at("results")) {
    Measurement measurement = measurement_from_json(result.at("measurement"));
    const auto twin = std::ranges::find(measurement.recordings, Role::twin, &Recording::role);
    if (twin == measurement.recordings.end()) continue;
    for (auto& round : twin->rounds)
      for (Sample& sample : round) sample.seconds *= 1 + options.planted;
    rows.push_back(guard_row(result.at("problem"), measurement.recordings.front(), *twin, policy));
  }
  if (rows.empty())
    fail(ATTUNE_INVALID_ARGUMENT, "--replay {}: no result has two copies of its baseline", options.replay);
  const GuardReport report = guard_report(std::move(rows), policy);
  print_report(report, policy, options.json);
  return exit_status_of(report.verdict(policy));
}

class LiveGuard {
 public:
  LiveGuard(const GuardOptions& options, const GuardPolicy& policy)
      : options_(options),
        policy_(policy),
        threads_(lab_thread_options()),
        backends_(backends_named(options.backend, threads_)),
        timekeeper_(backends_.front(), threads_, options.protocol, 1, false, options.trials) {}

  int run() {
    if (!options_.baseline.empty()) {
      stored_ = load_baseline(options_.baseline);
      const std::string why = incomparable(stored_, timekeeper_.environment(), timekeeper_.mode());
      if (!why.empty()) fail(ATTUNE_INVALID_ARGUMENT, "--baseline {}: {}", options_.baseline, why);
    }
    const std::vector<std::string> problems = problems_to_guard();
    ProgressLine progress;
    for (const std::string& problem : problems) {
      progress.say(fmt::format("checking {}", problem));
      measure(problem, [&](const Progress& p) {
        progress.say(
            fmt::format("{}, {}, round {} of {}", problem, p.contender, p.round + 1, options_.protocol.rounds));
      });
    }
    progress.clear();
    if (!options_.save.empty()) save();
    if (!compares()) return failed_ ? exit_failed_check : exit_ok;
    const GuardReport report = guard_report(std::move(rows_), policy_);
    print_report(report, policy_, options_.json);
    return failed_ ? exit_failed_check : exit_status_of(report.verdict(policy_));
  }

 private:
  bool compares() const { return !options_.against.empty() || !options_.baseline.empty(); }

  std::vector<std::string> problems_to_guard() const {
    ProblemArguments arguments = options_.problems;
    if (!arguments.none()) return arguments.resolve();
    if (!options_.baseline.empty()) {
      std::vector<std::string> problems;
      for (const auto& [problem, row] : stored_.rows) problems.push_back(problem);
      return problems;
    }
    arguments.sets = {timekeeper_.on_gpu() ? "grid" : "mission"};
    return arguments.resolve();
  }

  // The build that is guarded comes last.
  std::vector<Entrant> entrants() const {
    std::vector<Entrant> entrants;
    if (!options_.against.empty()) entrants.push_back({.name = "before", .library = options_.against});
    entrants.push_back({.name = "after", .library = options_.library});
    return entrants;
  }

  void measure(const std::string& text, const ProgressCallback& progress) {
    if (!options_.baseline.empty() && !stored_.rows.contains(text))
      return complain(text, "nothing to compare with: the baseline does not have it");
    const TimedProblem timed = timekeeper_.time(text, entrants(), progress);
    for (const NotTimed& absent : timed.not_timed)
      complain(text, absent.entrant.name == "after" ? cause(absent) : "nothing to compare with: " + cause(absent));
    // Whatever the build before did, one that refuses a problem, or is wrong, no longer does.
    failed_ |= std::ranges::any_of(timed.not_timed, [](const NotTimed& a) { return a.entrant.name == "after"; });
    if (timed.entrants.size() < entrants().size()) return;
    const std::vector<Recording>& recordings = timed.result.measurement.recordings;
    const auto named = [&](const char* name) -> const Recording& {
      return *std::ranges::find(recordings, name, &Recording::name);
    };
    measured_[text] = round_values(named("after"));
    if (!options_.against.empty())
      rows_.push_back(guard_row(text, named("before"), named("after"), policy_));
    else if (!options_.baseline.empty())
      rows_.push_back(guard_stored_row(text, stored_.rows.at(text), measured_.at(text), policy_));
  }

  static std::string cause(const NotTimed& absent) {
    if (absent.kind != NotTimed::Kind::wrong) return fmt::format("{}: {}", absent.entrant.name, absent.why);
    return fmt::format("{}: not timed, because it is wrong:\n{}", absent.entrant.name,
                       failure_text(absent.check, absent.check.of));
  }

  void complain(const std::string& problem, const std::string& why) const {
    if (options_.json)
      print_json({{"problem", problem}, {"not_compared", why}});
    else
      fmt::print("{}: {}\n", problem, why);
  }

  void save() const {
    if (measured_.empty()) fail(ATTUNE_INVALID_ARGUMENT, "--save {}: nothing was measured", options_.save);
    save_baseline({utc_now(), timekeeper_.mode(), timekeeper_.environment(), measured_}, options_.save);
    remark("baseline: {}, {}\n", options_.save, counted(static_cast<int64_t>(measured_.size()), "row"));
  }

  const GuardOptions& options_;
  const GuardPolicy& policy_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  Timekeeper timekeeper_;
  Baseline stored_;
  std::map<std::string, RoundValues> measured_;
  std::vector<GuardedRow> rows_;
  bool failed_ = false;
};

int guard_build(const GuardOptions& options) {
  const GuardPolicy policy = policy_of(options);
  if (!options.replay.empty()) return replay(options, policy);
  if (options.planted != 0) fail(ATTUNE_INVALID_ARGUMENT, "--planted is {}; it goes with --replay", options.planted);
  if (options.against.empty() && options.baseline.empty() && options.save.empty())
    fail(ATTUNE_INVALID_ARGUMENT,
         "nothing to compare with: give --against, --baseline or --replay, or --save a baseline");
  for (const auto& [option, file] :
       {std::pair("--against", &options.against), std::pair("--library", &options.library)})
    if (!file->empty() && !std::filesystem::exists(*file))
      fail(ATTUNE_INVALID_ARGUMENT, "{} is '{}'; there is no such file", option, *file);
  if (!options.save.empty()) try_folder_of("--save", options.save);
  return LiveGuard(options, policy).run();
}

}  // namespace

void add_guard(CLI::App& app, int& status) {
  auto options = std::make_shared<GuardOptions>();
  CLI::App* command = app.add_subcommand("guard", "find out whether a build is slower than the one before");
  options->problems.add_to(*command);
  add_backend_option(*command, options->backend);
  CLI::Option* against =
      command->add_option("--against", options->against, "the libattune.so before, measured in the same rounds");
  CLI::Option* baseline = command->add_option("--baseline", options->baseline,
                                              "a stored baseline; its rounds were others, so its margin is wider");
  CLI::Option* replay = command->add_option(
      "--replay", options->replay, "judge the two copies of one kernel in a record of evidence; measures nothing");
  command->add_option("--library", options->library, "the libattune.so to guard, instead of this build");
  CLI::Option* save = command->add_option("--save", options->save, "write what was measured as a baseline");
  command->add_option("--policy", options->policy, "a file of margins, instead of the built-in guard.toml");
  add_number(*command, "--planted", options->planted, 0, 1, "with --replay: make the second copy slower by this share");
  const Protocol& usual = options->protocol;
  add_rounds(*command, options->protocol.rounds)->default_str(std::to_string(usual.rounds));
  add_samples(*command, options->protocol.samples, "of each build in each round")
      ->default_str(std::to_string(usual.samples));
  add_budget(*command, options->protocol.budget_seconds, "seconds per problem; lowers the samples, 0 for none")
      ->default_str(fmt::format("{:g}", usual.budget_seconds));
  add_limit(*command, options->trials);
  command->add_flag("--json", options->json, "one object per row, and one for the whole");
  against->excludes(baseline)->excludes(replay);
  baseline->excludes(replay);
  replay->excludes(save);
  command->footer(
      "A row is slower if its ratio in clock cycles (in time where the clock is not known) is above the margin and "
      "its\n"
      "interval clear of 1; the set is judged by the geometric mean in time. Margins: guard.toml, docs/measuring.md.\n"
      "Without a problem or set: --set grid on a GPU, --set mission on a CPU, or the problems of the baseline.\n\n"
      "exit status: 0 nothing is slower, 1 something is slower, wrong or no longer supported, 2 bad input,\n"
      "4 unclear: the machine is too noisy to tell\n\n"
      "examples:\n"
      "  attune guard --against old/libattune.so\n"
      "  attune guard --save baseline.json --set small\n"
      "  attune guard --baseline baseline.json --json\n"
      "  attune guard --replay evidence/speed-20261118-ceb2174d.json --planted 0.02");
  command->callback([options, &status] { status = guard_build(*options); });
}

}  // namespace attune::lab
