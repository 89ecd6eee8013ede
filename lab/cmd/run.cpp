// attune run: the first thing to try. Checks a few problems against float64, times them on the best backend present,
// and prints a short table.
#include <fmt/format.h>

#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/cmd/timed_rows.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/measure/environment.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

struct RunOptions {
  ProblemArguments problems;
  std::string backend;
  Protocol protocol;
  uint64_t seed = 1;
  bool json = false;
};

class RunCommand {
 public:
  explicit RunCommand(const RunOptions& options)
      : options_(options),
        threads_(lab_thread_options()),
        backends_(backends_named(options.backend, threads_)),
        timekeeper_(backends_.front(), threads_, options.protocol, options.seed, false) {}

  int run() {
    ProblemArguments arguments = options_.problems;
    if (arguments.none()) arguments.sets = {"mission", "llama7b"};
    const std::vector<std::string> problems = arguments.resolve();
    if (!options_.json) print_machine();
    ProgressLine progress;
    for (const std::string& problem : problems) {
      progress.say(fmt::format("checking {}", problem));
      note(timekeeper_.time(problem, entrants_of(problem),
                            [&](const Progress& p) {
                              progress.say(
                                  fmt::format("{}, round {} of {}", problem, p.round + 1, options_.protocol.rounds));
                            }),
           progress);
    }
    progress.clear();
    if (!options_.json) print_table();
    if (failed_) return exit_failed_check;
    return refused_ ? exit_unsupported : exit_ok;
  }

 private:
  // Beside the library's own choice the three-step form, where the backend has one.
  std::vector<Entrant> entrants_of(const std::string& problem) const {
    std::vector<Entrant> entrants{{.name = "attune"}};
    for (const std::string& kernel : backends_.front().executor->kernels(*parse_problem(problem).operation))
      if (kernel.ends_with("/unfused")) entrants.push_back({.name = "unfused", .kernel = kernel});
    return entrants;
  }

  void print_machine() {
    const Facts facts = host_facts();
    fmt::print("{}, {}", facts.at("processor"), counted(threads_.size(), "thread"));
    if (timekeeper_.on_gpu())
      if (const Ceiling& matmul = timekeeper_.gpu_matmul(); matmul.absence.empty())
        fmt::print(", measured peak {:.0f} GFLOP/s of 16-bit products on the GPU", matmul.value * 1e3);
    fmt::print("\n");
  }

  void note(const TimedProblem& timed, ProgressLine& progress) {
    progress.clear();
    for (const NotTimed& absent : timed.not_timed) {
      (absent.kind == NotTimed::Kind::refused ? refused_ : failed_) = true;
      if (options_.json)
        print_json(to_json(timed.problem, absent));
      else
        fmt::print("{}", text_of(timed.problem, absent));
    }
    if (timed.entrants.empty() || timed.entrants[0].name != "attune") return;
    const TimedEntrant& ours = timed.entrants[0];
    const Comparison* unfused = timed.entrants.size() > 1 ? &*timed.entrants[1].against_first : nullptr;
    if (options_.json)
      print_json(object(timed, ours, unfused));
    else
      add_row(timed, ours, unfused);
  }

  nlohmann::json object(const TimedProblem& timed, const TimedEntrant& ours, const Comparison* unfused) {
    nlohmann::json json = to_json(ours.check);
    json["us"] = ours.summary.seconds * 1e6;
    json["lo"] = ours.summary.interval.lower * 1e6;
    json["hi"] = ours.summary.interval.upper * 1e6;
    json["gflops"] = timed.flops / ours.summary.seconds / 1e9;
    json.update(share_json(ours.share()));
    if (unfused != nullptr) {
      json["unfused_ratio"] = unfused->verdict.estimate;
      json["unfused_ratio_lo"] = unfused->verdict.interval.lower;
      json["unfused_ratio_hi"] = unfused->verdict.interval.upper;
    }
    return json;
  }

  void add_row(const TimedProblem& timed, const TimedEntrant& ours, const Comparison* unfused) {
    const Judgement& j = ours.check.judgement;
    const double flops_per_second = timed.flops / ours.summary.seconds;
    std::string gain = "-";
    if (unfused != nullptr)
      gain = fmt::format("{:.2f}x [{:.2f}, {:.2f}]", unfused->verdict.estimate, unfused->verdict.interval.lower,
                         unfused->verdict.interval.upper);
    table_.add({timed.problem, ours.kernel,
                duration_text(ours.summary.seconds, ours.summary.interval.lower, ours.summary.interval.upper),
                fmt::format("{:.0f}", flops_per_second / 1e9), share_text(ours.share()),
                fmt::format("{:.1e} of {:.1e}", j.rel_rms, j.rel_rms_bound), gain});
    reasons_.push_back(fmt::format("{}: {}, {}", timed.problem, ours.kernel, ours.check.why));
  }

  void print_table() {
    fmt::print("\n{}", table_.text());
    if (!timekeeper_.on_gpu()) fmt::print("{}", timekeeper_.cpu_ceilings().text());
    fmt::print("\n");
    for (const std::string& reason : reasons_) fmt::print("why  {}\n", reason);
    fmt::print(
        "\nmedian: of {} rounds, with a 95 % interval. error: relative RMS against float64, and what is allowed:\n"
        "1.5 times that of an ideal fused kernel. unfused: time of the three-step form (scores, softmax, values) from\n"
        "the same vector code over ours, in the same rounds.\n",
        options_.protocol.rounds);
  }

  const RunOptions& options_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  Timekeeper timekeeper_;
  Table table_{{{"problem"},
                {"kernel"},
                {"median", Table::Align::right},
                {"GFLOP/s", Table::Align::right},
                {"of peak", Table::Align::right},
                {"error", Table::Align::right},
                {"unfused", Table::Align::right}}};
  std::vector<std::string> reasons_;
  bool failed_ = false, refused_ = false;
};

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto options = std::make_shared<RunOptions>();
  options->protocol.rounds = 9;
  options->protocol.budget_seconds = 5;
  CLI::App* command = app.add_subcommand("run", "check, then time, a few problems on the best backend");
  options->problems.add_to(*command);
  add_backend_option(*command, options->backend);
  add_rounds(*command, options->protocol.rounds);
  add_seed(*command, options->seed, "of the inputs of the check");
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
