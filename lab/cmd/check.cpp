// attune check: is the output right? Against float64 through the gate, and by oracles that need no reference.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "core/error.hpp"
#include "dispatch/kernel.hpp"
#include "lab/check/calibrate.hpp"
#include "lab/check/method.hpp"
#include "lab/check/random_problem.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

struct CheckOptions {
  ProblemArguments problems;
  std::vector<std::string> kernels, inputs, oracles;
  std::vector<Entrant> outside;  // code from outside, each judged in a process of its own
  TrialOptions trials;
  std::string storage = "dense", backend;
  uint64_t seed = 1;
  int64_t random = 0;
  int64_t rows = 0;
  bool all = false, json = false, calibrate = false;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class CheckCommand {
 public:
  explicit CheckCommand(const CheckOptions& options)
      : options_(options), threads_(lab_thread_options()), backends_(backends_named(options.backend, threads_)) {}

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    for (Backend& backend : backends_) run_on(backend);
    if (!options_.json) print_summary(seconds_since(begin));
    if (failed_ > 0) return exit_failed_check;
    return passed_ == 0 && unsupported_ > 0 ? exit_unsupported : exit_ok;
  }

 private:
  struct GroupCount {
    int64_t checks = 0, failed = 0, reduced = 0;
    double seconds = 0;
    Worst worst;
  };

  void run_on(Backend& backend) {
    std::vector<PlannedCheck> plan =
        options_.all ? plan_checks(*backend.executor, backend.all_budget, options_.seed) : asked_for(backend);
    if (options_.rows > 0)
      for (PlannedCheck& planned : plan) planned.rows = {0, options_.rows};
    ProgressLine progress(static_cast<int64_t>(plan.size()));
    std::vector<std::string> order;
    std::map<std::string, GroupCount> groups;
    for (const PlannedCheck& planned : plan) {
      progress.say(planned.what.problem);
      if (!groups.contains(planned.group)) order.push_back(planned.group);
      GroupCount& group = groups[planned.group];
      if (!planned.reduced_from.empty()) ++group.reduced;
      const auto begin = std::chrono::steady_clock::now();
      Checker checker(*backend.executor, *backend.reference, threads_, planned.rows);
      for (const Outcome& outcome : checker.check(planned.what, planned.kernels))
        note(outcome, planned, group, checker, progress);
      for (const Entrant& entrant : options_.outside)
        for (const Outcome& outcome :
             judge_apart({backend.name, entrant, {planned.what}, options_.rows, -1}, options_.trials))
          note(outcome, planned, group, checker, progress);
      group.seconds += seconds_since(begin);
      progress.step(planned.what.problem);
    }
    progress.clear();
    if (options_.all && !options_.json) print_groups(backend, order, groups);
  }

  void note(const Outcome& outcome, const PlannedCheck& planned, GroupCount& group, Checker& checker,
            ProgressLine& progress) {
    // In a plan for all kernels a kernel may refuse a problem; that is its right.
    if (!outcome.unsupported.empty()) {
      if (options_.all) return;
      ++unsupported_;
    } else if (!outcome.not_applicable.empty()) {
      ++not_applicable_;
    } else {
      ++group.checks;
      ++(outcome.ok() ? passed_ : failed_);
      if (!outcome.ok()) ++group.failed;
      group.worst.look_at(outcome);
      worst_.look_at(outcome);
    }
    const bool failure = outcome.unsupported.empty() && !outcome.ok();
    if (options_.json) {
      nlohmann::json json = to_json(outcome);
      json["group"] = planned.group;
      if (!planned.reduced_from.empty()) json["reduced_from"] = planned.reduced_from;
      if (failure) json["reproduce"] = reproducer(smallest(checker, outcome));
      print_json(json);
      return;
    }
    progress.clear();
    if (failure)
      fmt::print("{}", failure_text(outcome, smallest(checker, outcome)));
    else if (!options_.all && options_.random == 0)
      fmt::print("{}\n", line_of(outcome));
  }

  // Code from outside is shown as it failed: each step of shrinking would be a process.
  static Case smallest(Checker& checker, const Outcome& failed) {
    return failed.of.option.empty() ? smallest_failure(checker, failed) : failed.of;
  }

  std::vector<PlannedCheck> asked_for(const Backend& backend) const {
    std::vector<std::string> kernels = options_.kernels;
    if (kernels.empty() && options_.outside.empty()) kernels = {""};
    const bool all = kernels == std::vector<std::string>{"all"};
    if (all) kernels.clear();
    for (const std::string& kernel : kernels)
      if (!kernel.empty() && find_kernel(kernel) == nullptr)
        fail(ATTUNE_INVALID_ARGUMENT, "there is no kernel '{}'; `attune info` lists them", kernel);

    std::vector<PlannedCheck> plan;
    const auto add = [&](const Case& c) {
      const auto of = all ? backend.executor->kernels(*parse_problem(c.problem).operation) : kernels;
      plan.push_back({"asked for", c, of, backend.rows, {}});
    };
    for (const std::string& problem : problems()) {
      Case c{problem, "", InputKind::normal, options_.seed, storage_from(options_.storage), std::nullopt};
      for (const InputKind kind : inputs()) {
        c.input = kind;
        add(c);
      }
      c.input = InputKind::normal;
      for (const Oracle oracle : oracles(c.problem)) {
        c.oracle = oracle;
        add(c);
      }
    }
    const auto is_computed = [&](const Operation& operation) {
      if (all) return !backend.executor->kernels(operation).empty();
      const auto computes = [&](const std::string& kernel) {
        return kernel.empty() ? backend.executor->choose("", parse_problem(operation.example)).supported()
                              : &find_kernel(kernel)->operation() == &operation;
      };
      return kernels.empty() ? computes("") : std::ranges::any_of(kernels, computes);
    };
    // One problem in four is a backward, or all of them where what was asked for computes nothing else.
    const bool backwards = options_.random > 0 && is_computed(backward_operation);
    const bool forwards = !backwards || is_computed(forward_operation);
    for (int64_t i = 0; i < options_.random; ++i) {
      const uint64_t seed = options_.seed + static_cast<uint64_t>(i);
      const bool backward = backwards && (!forwards || seed % 4 == 3);
      if (backward)
        add(random_backward_case(seed));
      else
        add(random_case(seed));
    }
    return plan;
  }

  std::vector<std::string> problems() const {
    ProblemArguments arguments = options_.problems;
    if (arguments.none() && options_.random == 0) arguments.sets = {"features", "edges"};
    return arguments.resolve();
  }

  // An oracle brings its own inputs, so naming one leaves the gate out unless an input is named too.
  std::vector<InputKind> inputs() const {
    if (options_.inputs == std::vector<std::string>{"all"}) return {all_input_kinds.begin(), all_input_kinds.end()};
    if (options_.inputs.empty() && options_.oracles.empty()) return {InputKind::normal};
    std::vector<InputKind> kinds;
    for (const std::string& name : options_.inputs) kinds.push_back(input_kind_from(name));
    return kinds;
  }

  // All are those that say something about the problem's operation.
  std::vector<Oracle> oracles(const std::string& problem) const {
    if (options_.oracles == std::vector<std::string>{"all"}) {
      const std::span<const Oracle> known = check_method_of(parse_problem(problem)).oracles;
      return {known.begin(), known.end()};
    }
    std::vector<Oracle> oracles;
    for (const std::string& name : options_.oracles) oracles.push_back(oracle_from(name));
    return oracles;
  }

  static void print_groups(const Backend& backend, const std::vector<std::string>& order,
                           const std::map<std::string, GroupCount>& groups) {
    Table table({{backend.name},
                 {"checks", Table::Align::right},
                 {"failed", Table::Align::right},
                 {"closest to its bound", Table::Align::right},
                 {"seconds", Table::Align::right},
                 {""}});
    bool reduced = false;
    for (const std::string& name : order) {
      const GroupCount& group = groups.at(name);
      const auto& worst = group.worst.outcome();
      table.add({name, std::to_string(group.checks), std::to_string(group.failed),
                 worst ? fmt::format("{:.0f} %", 100 * worst->judgement.strain()) : "-",
                 fmt::format("{:.1f}", group.seconds),
                 group.reduced > 0 ? fmt::format("{} reduced", group.reduced) : ""});
      reduced = reduced || group.reduced > 0;
    }
    fmt::print("{}", table.text());
    if (reduced)
      fmt::print(
          "reduced: fewer batches, heads or queries than the set has, all of its keys; a problem of the set is\n"
          "checked whole by naming it, as in: attune check --set grid\n");
    flush_output();  // the next backend may take minutes
  }

  void print_summary(double seconds) const {
    if (const std::string text = worst_.text(); !text.empty()) fmt::print("{}\n", text);
    fmt::print("{} passed, {} failed", counted(passed_, "check"), failed_);
    if (unsupported_ > 0) fmt::print(", {} unsupported", unsupported_);
    if (not_applicable_ > 0) fmt::print(", {} oracles not applicable", not_applicable_);
    fmt::print(", seed {}, {:.1f} s\n", options_.seed, seconds);
  }

  const CheckOptions& options_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  Worst worst_;
  int64_t passed_ = 0, failed_ = 0, unsupported_ = 0, not_applicable_ = 0;
};

// Prints what tests/accuracy.toml should say.
int print_calibration(uint64_t seed) {
  constexpr int repeats = 8;
  cpu::Threads threads(lab_thread_options());
  const auto reference = make_cpu_reference(threads);
  for (const auto& [dtype, entry] : calibrate(*reference, threads, seed, repeats).by_dtype)
    fmt::print("{} = {:.1f}  # Ideal {:.3f} over {} elements; '{}', input {}, seed {}\n", name_of(dtype),
               constant_from(entry.max_ulp), entry.max_ulp, entry.elements, entry.where.problem,
               name_of(entry.where.input), entry.where.seed);
  return exit_ok;
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = app.add_subcommand("check", "compare kernels with float64, and consult the oracles");
  options->problems.add_to(*command);
  command->add_flag("--all", options->all, "every set, hostile input and oracle on every backend, within minutes");
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* about) {
    command->add_option(name, values, about)->allow_extra_args(false);
  };
  list("--kernel", options->kernels, "a kernel by name, or all; without it, the one the library chooses");
  list("--input", options->inputs, "a kind of input, or all; without it, normal");
  list("--oracle", options->oracles, "an oracle, or all, instead of the comparison with float64");
  const auto outside = std::make_shared<OutsideOptions>();
  outside->add_to(*command, options->trials);
  add_backend_option(*command, options->backend);
  command->add_option("--storage", options->storage, "dense, padded, odd or reversed strides");
  add_seed(*command, options->seed, "of the inputs");
  add_whole_number(*command, "--random", options->random, 1, most_of_anything,
                   "so many random problems, from the seed on");
  add_whole_number(*command, "--rows", options->rows, 1, most_of_anything,
                   "rows to compare at most, instead of all up to 2^33 operations");
  command->add_flag("--json", options->json, "one object per line");
  command->add_flag("--calibrate", options->calibrate, "measure Ideal, for the constants in tests/accuracy.toml");
  command->footer(
      "examples:\n"
      "  attune check --all\n"
      "  attune check 'fwd b1 h8/8 q512 k512 d64 f16' --kernel all --input all\n"
      "  attune check --set edges --oracle all\n"
      "  attune check --random 1000 --seed 7 --kernel all --json\n"
      "  attune check --plugin ./libmine.so 'fwd b1 h2/2 q100 k77 d64 f16' --input all");
  command->callback([options, outside, command, &status] {
    for (const char* option : {"problem", "--set", "--kernel", "--input", "--oracle", "--storage", "--random"})
      if (options->all && command->count(option) > 0)
        fail(ATTUNE_INVALID_ARGUMENT, "{} does not go with --all, which has all of them", option);
    options->outside = outside->entrants();
    for (const Entrant& entrant : options->outside) {
      if (options->all)
        fail(ATTUNE_INVALID_ARGUMENT, "{} does not go with --all, which is for this library", entrant.option());
      if (!options->oracles.empty())
        fail(ATTUNE_INVALID_ARGUMENT, "{} does not go with --oracle, which asks a kernel by its name",
             entrant.option());
    }
    status = options->calibrate ? print_calibration(options->seed) : CheckCommand(*options).run();
  });
}

}  // namespace attune::lab
