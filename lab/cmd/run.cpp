// attune run: the first thing to try. Checks a few problems against float64, times them on the best backend present,
// and prints a short table.
#include <fmt/format.h>

#include <set>

#include "cpu/peak.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/measure/environment.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

constexpr std::string_view unfused_kernel = "cpu/unfused";

struct RunOptions {
  ProblemArguments problems;
  TimingOptions timing;
  bool json = false;
};

class RunCommand {
 public:
  explicit RunCommand(const RunOptions& options)
      : options_(options), threads_(lab_thread_options()), backends_(make_backends(threads_)) {}

  int run() {
    ProblemArguments arguments = options_.problems;
    if (arguments.none()) arguments.sets = {"mission", "llama7b"};
    const std::vector<std::string> problems = arguments.resolve();
    Backend& backend = backends_.front();
    peak_flops_ = cpu::measure_peak_flops(threads_.size());
    if (!options_.json) {
      Facts facts = host_facts();
      fmt::print("{}, {}, measured peak {:.0f} GFLOP/s in float32\n", facts["processor"],
                 counted(threads_.size(), "thread"), peak_flops_ / 1e9);
    }
    ProgressLine progress;
    const std::vector<Entrant> entrants{{"attune", "", "", ""}, {"unfused", std::string(unfused_kernel), "", ""}};
    for (const std::string& problem : problems) {
      progress.say(fmt::format("checking {}", problem));
      const TimedProblem timed = time_problem(
          problem, entrants, backend, threads_, options_.timing,
          [&](const Progress& p) { progress.say(fmt::format("{}, round {} of {}", problem, p.round + 1, p.rounds)); });
      progress.clear();
      note(timed);
    }
    if (!options_.json) print_table();
    return failed_ ? exit_failed_check : exit_ok;
  }

 private:
  void note(const TimedProblem& timed) {
    if (!timed.timed()) {
      failed_ = true;
      if (options_.json)
        print_json(to_json(timed.failed));
      else
        fmt::print("not timed, because it is wrong:\n{}", failure_text(timed.failed, timed.failed.of));
      return;
    }
    const TimedEntrant& ours = timed.entrants[0];
    const Comparison& unfused = *timed.entrants[1].against_first;
    const Judgement& j = ours.check.judgement;
    const double flops_per_second = timed.flops / ours.summary.seconds;
    if (options_.json) {
      nlohmann::json json = to_json(ours.check);
      json["us"] = ours.summary.seconds * 1e6;
      json["lo"] = ours.summary.interval.lower * 1e6;
      json["hi"] = ours.summary.interval.upper * 1e6;
      json["gflops"] = flops_per_second / 1e9;
      json["peak_gflops"] = peak_flops_ / 1e9;
      json["unfused_ratio"] = unfused.verdict.estimate;
      json["unfused_ratio_lo"] = unfused.verdict.interval.lower;
      json["unfused_ratio_hi"] = unfused.verdict.interval.upper;
      print_json(json);
      return;
    }
    table_.add({timed.problem, ours.kernel,
                duration_text(ours.summary.seconds, ours.summary.interval.lower, ours.summary.interval.upper),
                fmt::format("{:.0f}", flops_per_second / 1e9),
                fmt::format("{:.0f} %", 100 * flops_per_second / peak_flops_),
                fmt::format("{:.1e} of {:.1e}", j.rel_rms, j.rel_rms_bound),
                fmt::format("{:.2f}x [{:.2f}, {:.2f}]", unfused.verdict.estimate, unfused.verdict.interval.lower,
                            unfused.verdict.interval.upper)});
    reasons_.push_back(fmt::format("{}: {}, {}", timed.problem, ours.kernel, ours.check.why));
  }

  void print_table() const {
    fmt::print("\n{}\n", table_.text());
    for (const std::string& reason : reasons_) fmt::print("why  {}\n", reason);
    fmt::print(
        "\nmedian: of {} rounds, with a 95 % interval. error: relative RMS against float64, and what is allowed:\n"
        "1.5 times that of an ideal fused kernel. unfused: time of the three-step form (scores, softmax, values) from\n"
        "the same vector code over ours, in the same rounds.\n",
        options_.timing.protocol.rounds);
  }

  const RunOptions& options_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  double peak_flops_ = 0;
  Table table_{{{"problem"},
                {"kernel"},
                {"median", Table::Align::right},
                {"GFLOP/s", Table::Align::right},
                {"of peak", Table::Align::right},
                {"error", Table::Align::right},
                {"unfused", Table::Align::right}}};
  std::vector<std::string> reasons_;
  bool failed_ = false;
};

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto options = std::make_shared<RunOptions>();
  options->timing.twin = false;
  options->timing.protocol.rounds = 9;
  options->timing.protocol.budget_seconds = 5;
  CLI::App* command = app.add_subcommand("run", "check, then time, a few problems on the best backend");
  options->problems.add_to(*command);
  command->add_option("--rounds", options->timing.protocol.rounds, "of measurement");
  command->add_option("--seed", options->timing.seed, "of the inputs");
  command->add_flag("--json", options->json, "one object per line");
  command->footer(
      "Without a problem or set: --set mission --set llama7b.\n\n"
      "examples:\n"
      "  attune run\n"
      "  attune run 'fwd b1 h32/8 q1 k4096 d128 bf16'\n"
      "  attune run --set small --json");
  command->callback([options, &status] { status = RunCommand(*options).run(); });
}

}  // namespace attune::lab
