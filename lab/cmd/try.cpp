// attune try: one file or function of somebody else's. What it needs of a multiprocessor, whether it is right, how long
// it takes beside the best of Attune and torch's SDPA, and what bounds it.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>

#include "core/error.hpp"
#include "gpu/driver.hpp"
#include "jit/embedded.hpp"
#include "jit/nvrtc.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/cmd/timed_rows.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"
#include "lab/try/bounds.hpp"
#include "lab/try/kernel_build.hpp"

namespace attune::jit {
extern const EmbeddedFile new_kernel_files[];  // lab/CMakeLists.txt
}

namespace attune::lab {
namespace {

struct TryOptions {
  std::string target, new_file, backend;
  ProblemArguments problems;
  TrialOptions trials;
  Protocol protocol;
  std::optional<double> price_per_hour;
  bool resources = false, alone = false, json = false;
};

constexpr std::array compiled_for{"sm_80", "sm_89", "sm_90a"};
constexpr const char* sdpa_backends[] = {"cudnn", "flash", "efficient"};
constexpr size_t most_timed = 2;

// Where no problem is named: the first ones that are not refused. Odd extents first, since they go wrong first.
std::vector<std::string> problems_to_check() {
  std::vector<std::string> problems;
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const char* shape :
         {"b2 h4/4 q100 k77 d64 {}", "b1 h2/2 q128 k128 d64 {} causal-br", "b1 h2/2 q33 k130 d128 {} causal-br",
          "b1 h4/2 q64 k200 d128 {} nolse", "b1 h2/2 q1 k300 d64 {} nolse", "b2 h2/2 q128 k256 d64 {} nolse"})
      problems.push_back("fwd " + fmt::format(fmt::runtime(shape), dtype));
  return problems;
}

std::vector<std::string> problems_to_time(bool on_gpu) {
  std::vector<std::string> problems;
  for (const char* dtype : {"f16", "bf16", "f32"})
    for (const char* shape : {"d64 {} nolse", "d128 {} nolse causal-br", "d64 {}", "d128 {} causal-br"})
      problems.push_back((on_gpu ? "fwd b4 h16/16 q2048 k2048 " : "fwd b1 h4/4 q128 k128 ") +
                         fmt::format(fmt::runtime(shape), dtype));
  return problems;
}

void write_new(const std::string& path) {
  if (std::filesystem::exists(path)) fail(ATTUNE_INVALID_ARGUMENT, "--new is '{}', which exists", path);
  if (!path.ends_with(".cu")) fail(ATTUNE_INVALID_ARGUMENT, "--new is '{}'; a name that ends in .cu is allowed", path);
  write_file(path, jit::new_kernel_files[0].text);
  remark("{}: written; next: attune try {}\n", path, path);
}

Entrant entrant_of(const std::string& target) {
  OutsideOptions outside;
  if (target.ends_with(".cu"))
    outside.sources = {target};
  else if (target.find(':') != std::string::npos)
    outside.callables = {target};
  else if (target.ends_with(".so"))
    outside.plugins = {target};
  else
    fail(ATTUNE_INVALID_ARGUMENT, "'{}': a .cu file, a plug-in (.so) or a function (module:function) can be tried",
         target);
  return outside.entrants().front();
}

class TryCommand {
 public:
  explicit TryCommand(const TryOptions& options) : options_(options), entrant_(entrant_of(options.target)) {}

  int run() {
    if (!entrant_.source.empty()) {
      file_ = read_kernel_file(entrant_.source);
      show_resources();
    } else if (options_.resources) {
      fail(ATTUNE_INVALID_ARGUMENT, "--resources is for .cu files; this is {}", options_.target);
    }
    if (options_.resources) return exit_ok;
    cpu::Threads threads(lab_thread_options());
    std::vector<Backend> backends = backends_named(options_.backend, threads);
    Backend& backend = backends.front();
    on_gpu_ = backend.executor->device_kind() == DeviceKind::cuda;
    if (file_ && !on_gpu_) {
      say("not checked and not timed: there is no GPU here");
      return exit_unsupported;
    }
    if (options_.price_per_hour && !on_gpu_)
      fail(ATTUNE_INVALID_ARGUMENT, "--price is {:g} for an hour of a GPU; this run uses none",
           *options_.price_per_hour);
    check(backend);
    if (passed_ == 0 && failed_ == 0) {
      say(fmt::format("it takes none of the problems: {}", refusal_));
      return exit_unsupported;
    }
    if (failed_ > 0) {
      say("not timed, because it is wrong");
      return exit_failed_check;
    }
    time(backend, threads);
    if (on_gpu_) print_card_time(steady_clock().now() - begin_, options_.price_per_hour, options_.json);
    return failed_ > 0 ? exit_failed_check : exit_ok;
  }

 private:
  void say(const std::string& text) const {
    if (options_.json)
      remark("{}\n", text);
    else
      fmt::print("{}\n", text);
  }

  std::vector<std::string> problems_or(std::vector<std::string> usual) const {
    return options_.problems.none() ? std::move(usual) : options_.problems.resolve();
  }

  // The problem that resources are told for: the first one that the kernel takes.
  std::optional<Problem> shown_problem() const {
    std::vector<std::string> all = problems_or(problems_to_time(true));
    if (options_.problems.none()) std::ranges::copy(problems_to_check(), std::back_inserter(all));
    for (const std::string& text : all)
      if (const Problem problem = parse_problem(text); refusal_of(*file_, problem).empty()) return problem;
    return std::nullopt;
  }

  void show_resources() {
    const std::optional<Problem> problem = shown_problem();
    if (!problem)
      fail(ATTUNE_UNSUPPORTED, "{}: {}; name a problem that it takes", file_->path,
           refusal_of(*file_, parse_problem(problems_or(problems_to_time(true)).front())));
    const KernelLaunch launch = launch_of(*file_, *problem);
    const int newest = gpu::find_driver() == nullptr ? INT_MAX : gpu::driver().major();
    const jit::Compiler& compiler = jit::find_nvrtc(newest);
    using Align = Table::Align;
    Table table({{fmt::format("for '{}'", to_string(*problem))},
                 {"registers", Align::right},
                 {"spilled bytes", Align::right},
                 {"stack bytes", Align::right},
                 {"shared bytes", Align::right},
                 {"threads", Align::right},
                 {"blocks per SM", Align::right},
                 {"occupancy", Align::right},
                 {""}});
    for (const char* arch : compiled_for) {
      const KernelBuild build = build_kernel(*file_, *problem, arch, compiler);
      const KernelResources r = resources_of(build, launch, gpu::typical_device(arch));
      if (options_.json) {
        print_json({{"arch", arch},
                    {"problem", to_string(*problem)},
                    {"registers", r.registers},
                    {"spill_store_bytes", r.spill_store_bytes},
                    {"spill_load_bytes", r.spill_load_bytes},
                    {"stack_bytes", r.stack_bytes},
                    {"static_shared_bytes", r.static_shared_bytes},
                    {"dynamic_shared_bytes", r.dynamic_shared_bytes},
                    {"threads", r.threads},
                    {"grid", launch.grid},
                    {"blocks_per_sm", r.blocks_per_sm},
                    {"occupancy", r.occupancy},
                    {"complaint", r.complaint},
                    {"compiler", compiler.version()}});
        continue;
      }
      table.add({arch, std::to_string(r.registers), std::to_string(r.spill_store_bytes + r.spill_load_bytes),
                 std::to_string(r.stack_bytes), fmt::format("{} + {}", r.static_shared_bytes, r.dynamic_shared_bytes),
                 std::to_string(r.threads), std::to_string(r.blocks_per_sm), fmt::format("{:.0f} %", 100 * r.occupancy),
                 r.complaint});
    }
    if (!options_.json) fmt::print("{}", table.text());
    flush_output();
  }

  // Normal inputs at every problem, then the hostile kinds at the first one that is taken.
  void check(Backend& backend) {
    std::vector<Case> cases;
    for (const std::string& text : problems_or(problems_to_check())) cases.emplace_back().problem = text;
    const std::vector<Outcome> outcomes = judge(backend, std::move(cases));
    const auto taken = std::ranges::find(outcomes, "", &Outcome::unsupported);
    if (taken == outcomes.end() || failed_ > 0) return summarise();
    std::vector<Case> hostile;
    for (const InputKind kind : all_input_kinds) {
      if (kind == InputKind::normal) continue;
      Case& what = hostile.emplace_back();
      what.problem = taken->of.problem;
      what.input = kind;
    }
    judge(backend, std::move(hostile));
    summarise();
  }

  std::vector<Outcome> judge(Backend& backend, std::vector<Case> cases) {
    ProgressLine progress;
    progress.say(
        fmt::format("checking {} at {}", options_.target, counted(static_cast<int64_t>(cases.size()), "case")));
    const size_t asked = cases.size();
    std::vector<Outcome> outcomes = judge_apart({backend.name, entrant_, std::move(cases), 0, 0x1p28}, options_.trials);
    progress.clear();
    for (const Outcome& outcome : outcomes) {
      if (!outcome.unsupported.empty()) {
        refusal_ = outcome.unsupported;
        continue;
      }
      ++(outcome.ok() ? passed_ : failed_);
      if (options_.json)
        print_json(to_json(outcome));
      else
        fmt::print("{}", outcome.ok() ? line_of(outcome) + "\n" : failure_text(outcome, outcome.of));
    }
    if (outcomes.size() < asked)
      say(fmt::format("{} not checked after that", counted(static_cast<int64_t>(asked - outcomes.size()), "case")));
    flush_output();
    return outcomes;
  }

  void summarise() const {
    if (passed_ + failed_ > 0) say(fmt::format("{} passed, {} failed", counted(passed_, "check"), failed_));
  }

  std::vector<Entrant> entrants() const {
    std::vector<Entrant> all{{.name = "attune"}, entrant_};
    if (on_gpu_ && !options_.alone)
      for (const char* backend : sdpa_backends)
        all.push_back({.name = backend, .callable = fmt::format("attune.lab.sdpa_functions:{}", backend)});
    return all;
  }

  void time(Backend& backend, cpu::Threads& threads) {
    Timekeeper timekeeper(backend, threads, options_.protocol, 1, true, options_.trials);
    const std::vector<Ceiling> ceilings = on_gpu_ ? ceilings_here() : std::vector<Ceiling>{};
    using Align = Table::Align;
    Table table({{"problem"},
                 {"contender"},
                 {"median", Align::right},
                 {"GFLOP/s", Align::right},
                 {"of peak", Align::right},
                 {"std", Align::right},
                 {"time over attune", Align::right},
                 {"verdict"}});
    std::vector<std::string> remarks;
    size_t timed_problems = 0;
    ProgressLine progress;
    for (const std::string& text : problems_or(problems_to_time(on_gpu_))) {
      if (options_.problems.none() && timed_problems == most_timed) break;
      const TimedProblem timed = timekeeper.time(text, entrants(), [&](const Progress& p) {
        progress.say(fmt::format("{}, {}, round {}", text, p.contender, p.round + 1));
      });
      progress.clear();
      const auto is_mine = [&](const auto& each) { return each.entrant.same_code(entrant_); };
      const auto mine = std::ranges::find_if(timed.not_timed, is_mine);
      if (mine != timed.not_timed.end() && mine->kind == NotTimed::Kind::refused && options_.problems.none()) continue;
      if (mine != timed.not_timed.end() && mine->kind != NotTimed::Kind::refused) ++failed_;
      for (const NotTimed& absent : timed.not_timed) {
        if (options_.json)
          print_json(to_json(text, absent));
        else
          remarks.push_back(text_of(text, absent));
      }
      for (const TimedEntrant& entrant : timed.entrants)
        if (options_.json)
          print_json(to_json(timed, entrant));
        else
          add_row(table, timed, entrant);
      note_bounds(timed, ceilings, timekeeper, remarks);
      ++timed_problems;
    }
    if (options_.json) return;
    fmt::print("{}", table.text());
    for (const std::string& each : remarks) fmt::print("{}", each);
  }

  static void add_row(Table& table, const TimedProblem& timed, const TimedEntrant& entrant) {
    std::string ratio, verdict;
    if (entrant.against_first) {
      const stats::Verdict& v = entrant.against_first->verdict;
      ratio = fmt::format("{:.3f} [{:.3f}, {:.3f}]", v.estimate, v.interval.lower, v.interval.upper);
      verdict = stats::name_of(v.outcome);
    }
    const Summary& s = entrant.summary;
    table.add({timed.problem, entrant.name, duration_text(s.seconds, s.interval.lower, s.interval.upper),
               fmt::format("{:.0f}", timed.flops / s.seconds / 1e9), share_text(entrant.share()),
               fmt::format("{:.1f} %", 100 * s.relative_std), ratio, verdict});
  }

  // Of the contender that is tried: it is the one whose name is not this library's.
  void note_bounds(const TimedProblem& timed, const std::vector<Ceiling>& ceilings, Timekeeper& timekeeper,
                   std::vector<std::string>& remarks) const {
    for (const TimedEntrant& entrant : timed.entrants) {
      if (!entrant.alarm.empty()) remarks.push_back(fmt::format("alarm: {}: {}\n", entrant.name, entrant.alarm));
      if (!on_gpu_ || entrant.kernel.empty() == (entrant.name == "attune")) continue;
      Problem problem = parse_problem(timed.problem);
      const std::string text =
          bounds_text(bounds_of(problem, ceilings, timekeeper.sm_count()), entrant.summary.seconds);
      if (!text.empty()) remarks.push_back(fmt::format("share of each bound: {}: {}\n", entrant.name, text));
    }
  }

  static std::vector<Ceiling> ceilings_here() {
    CudaGpu gpu;
    return gpu_ceilings(gpu, [](std::string_view) {});
  }

  const TryOptions& options_;
  Entrant entrant_;
  std::optional<KernelFile> file_;
  const double begin_ = steady_clock().now();
  bool on_gpu_ = false;
  int64_t passed_ = 0, failed_ = 0;
  std::string refusal_;
};

}  // namespace

void add_try(CLI::App& app, int& status) {
  auto options = std::make_shared<TryOptions>();
  options->protocol.budget_seconds = 5;
  CLI::App* command =
      app.add_subcommand("try", "your kernel, plug-in or function: is it right, how fast, and what limits it?");
  command->add_option("target", options->target, "mine.cu, libmine.so, module:function or file.py:function");
  options->problems.add_to(*command);
  command->add_option("--new", options->new_file, "write a kernel to start from, as a .cu file");
  command->add_flag("--resources", options->resources,
                    "of a .cu file: only registers, spills, shared memory and occupancy, for which no GPU is needed");
  command->add_flag("--alone", options->alone, "beside Attune alone, without torch's SDPA");
  add_backend_option(*command, options->backend);
  command->add_option("--python", options->trials.python, "the Python that has torch (by default python3)");
  add_limit(*command, options->trials);
  add_rounds(*command, options->protocol.rounds);
  add_samples(*command, options->protocol.samples, "of each contender in each round");
  add_budget(*command, options->protocol.budget_seconds, "seconds per problem, 0 for none; lowers the samples");
  add_price(*command, options->price_per_hour);
  command->add_flag("--json", options->json, "one object per line");
  command->footer(
      "docs/your-kernel.md says how a .cu file, a plug-in and a function of Python are to look.\n"
      "Without a problem: small ones to check, and two to time, that it takes.\n\n"
      "exit status: 0 right and timed, 1 wrong, crashed or hung, 2 bad input, 3 no GPU for it here, or no problem "
      "taken\n\n"
      "examples:\n"
      "  attune try --new mine.cu\n"
      "  attune try mine.cu\n"
      "  attune try mine.cu --resources\n"
      "  attune try ./libmine.so 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune try mine.py:attention --python venv/bin/python");
  command->callback([options, &status] {
    if (options->new_file.empty() == options->target.empty())
      fail(ATTUNE_INVALID_ARGUMENT, "try takes a target, or --new with the file to write");
    if (options->new_file.empty()) {
      status = TryCommand(*options).run();
    } else {
      write_new(options->new_file);
      status = exit_ok;
    }
  });
}

}  // namespace attune::lab
