// attune bench: times kernels against each other in the same rounds, after each has passed its check.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "dispatch/select.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/cmd/peer_bench.hpp"
#include "lab/cmd/speed_evidence.hpp"
#include "lab/cmd/timed_rows.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/measure/quiet_cpus.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

// On a CPU a problem takes more than 2 seconds then, however short its calls are. Many short samples, not few long
// ones: where CPUs are slow every few milliseconds, the quickest of them tells more.
constexpr int cpu_samples = 25;
// Of a problem and number of threads on a CPU: enough for these in each of 15 rounds up to 7 ms a call, and for one
// or two where a call reads 512 MiB.
constexpr double cpu_budget_seconds = 10;

struct BenchOptions {
  ProblemArguments problems;
  std::vector<std::string> kernels, configurations;
  OutsideOptions outside;
  PeerOptions peers;
  std::string backend;
  std::vector<int> threads;  // empty: what the library takes by itself
  bool any_cpu = false;
  Protocol protocol;
  bool budget_given = false, samples_given = false, mode_given = false;
  TrialOptions trials;
  std::optional<double> price_per_hour;
  uint64_t seed = 1;
  bool json = false;
};

// The kernel once for each configuration it has for the problem, the one it would choose first.
std::vector<Entrant> in_every_configuration(const std::string& name, const std::string& text, DeviceKind device_kind) {
  const Context context(attune_options{});
  Problem problem = parse_problem(text);
  problem.device_kind = device_kind;
  const Selection selection = select(problem, context, name);
  std::vector<Entrant> entrants;
  if (selection.chosen == nullptr) return {{.name = name, .kernel = name}};  // the check says what it lacks
  for (const Configuration& c : selection.chosen->configurations(problem, context))
    entrants.push_back({.name = fmt::format("{} {}", name, c.text), .kernel = name, .config = c.text});
  if (entrants.empty()) entrants.push_back({.name = name, .kernel = name});
  return entrants;
}

std::vector<Entrant> entrants_of(const BenchOptions& options, const std::string& problem, DeviceKind device_kind) {
  std::vector<Entrant> entrants;
  for (const std::string& kernel : options.kernels) entrants.push_back({.name = kernel, .kernel = kernel});
  for (const std::string& kernel : options.configurations)
    for (Entrant& entrant : in_every_configuration(kernel, problem, device_kind))
      entrants.push_back(std::move(entrant));
  if (entrants.empty()) entrants.push_back({.name = "attune"});
  for (Entrant& entrant : options.outside.entrants()) entrants.push_back(std::move(entrant));
  return entrants;
}

// Each with each number of threads: what one of them gains is a ratio inside rounds, too.
std::vector<Entrant> with_thread_counts(const std::vector<Entrant>& entrants, const std::vector<int>& counts) {
  if (counts.empty()) return entrants;
  std::vector<Entrant> all;
  for (const Entrant& entrant : entrants)
    for (const int count : counts) {
      Entrant& next = all.emplace_back(entrant);
      next.threads = count;
      if (counts.size() > 1) next.name += fmt::format(", {}", counted(count, "thread"));
    }
  return all;
}

std::vector<std::string> problems_of(const BenchOptions& options) {
  ProblemArguments arguments = options.problems;
  if (arguments.none()) arguments.sets = {"mission"};
  return arguments.resolve();
}

PeerBench peer_bench_of(const BenchOptions& options) {
  options.outside.entrants();  // says what is wrong with them
  const auto refuse = [](bool given, const char* option, const char* why) {
    if (given) fail(ATTUNE_INVALID_ARGUMENT, "{} does not go with --peers: {}", option, why);
  };
  refuse(!options.outside.against.empty(), "--against",
         "their host loads one libattune.so; compare two without --peers");
  refuse(options.backend == "cpu", "--backend cpu", "they run on a GPU");
  refuse(!options.threads.empty(), "--threads", "they run on a GPU");
  refuse(options.any_cpu, "--any-cpu", "they run on a GPU");
  refuse(!options.configurations.empty(), "--configurations", "their host calls kernels as users do");
  refuse(!options.outside.sources.empty(), "--source", "`attune try` has a kernel beside SDPA");
  refuse(!options.outside.callables.empty(), "--callable", "measure a function without --peers");
  return {options.peers,    problems_of(options), options.kernels,        options.outside.plugins,
          options.protocol, options.trials,       options.price_per_hour, options.json};
}

void refuse_peer_options(const PeerOptions& peers) {
  for (const auto& [option, value] : {std::pair("--lines", &peers.lines), std::pair("--recorded", &peers.recorded),
                                      std::pair("--triton", &peers.triton)})
    if (!value->empty()) fail(ATTUNE_INVALID_ARGUMENT, "{} needs --peers", option);
}

void check_threads(const BenchOptions& options, bool on_gpu) {
  if (options.any_cpu && options.threads.empty())
    fail(ATTUNE_INVALID_ARGUMENT, "--any-cpu needs --threads: without, there is a thread for every CPU");
  if (options.threads.empty()) return;
  if (on_gpu) fail(ATTUNE_INVALID_ARGUMENT, "--threads is for CPUs; add --backend cpu");
  if (!options.outside.plugins.empty())
    fail(ATTUNE_INVALID_ARGUMENT, "--threads does not go with --plugin: a plug-in has threads of its own");
  if (!options.outside.callables.empty())
    fail(ATTUNE_INVALID_ARGUMENT, "--threads does not go with --callable: Python has threads of its own");
}

// What a run without peers cannot be asked for.
void check_options(const BenchOptions& options, const std::vector<std::string>& problems, bool on_gpu) {
  check_threads(options, on_gpu);
  for (const std::vector<std::string>* names : {&options.kernels, &options.configurations})
    for (const std::string& name : *names)
      if (find_kernel(name) == nullptr)
        fail(ATTUNE_INVALID_ARGUMENT, "there is no kernel '{}'; `attune info` lists them", name);
  const bool one = options.kernels.size() <= 1 && options.configurations.empty() && options.outside.none();
  if (!options.peers.evidence.empty()) {
    if (!(one && on_gpu))
      fail(ATTUNE_INVALID_ARGUMENT, "--evidence needs --peers, or one kernel of this library alone on a GPU");
    try_folder("--evidence", options.peers.evidence);
  }
  if (!on_gpu && options.price_per_hour)
    fail(ATTUNE_INVALID_ARGUMENT, "--price is {:g} for an hour of a GPU; this run uses none", *options.price_per_hour);
  if (!on_gpu && options.protocol.mode != Protocol{}.mode)
    fail(ATTUNE_INVALID_ARGUMENT, "--mode is '{}', which needs a GPU; on a CPU cpu is allowed", options.protocol.mode);
  if (on_gpu && options.mode_given && options.protocol.mode == Protocol{}.mode)
    fail(ATTUNE_INVALID_ARGUMENT, "--mode is 'cpu'; on a GPU steady, cold, pdl or host is allowed");
  if (options.protocol.mode != name_of(GpuMode::pdl)) return;
  for (const std::string& problem : problems)
    if (!parse_problem(problem).has(ATTUNE_OVERLAP))
      fail(ATTUNE_INVALID_ARGUMENT,
           "--mode pdl: '{}' does not ask to overlap; add the word `overlap`, or take --set latency-overlap", problem);
}

class BenchCommand {
 public:
  explicit BenchCommand(const BenchOptions& options)
      : options_(options),
        threads_(lab_thread_options()),
        backends_(backends_named(options.backend, threads_)),
        timekeeper_(backends_.front(), threads_, protocol_for(backends_.front()), options.seed, true, options.trials),
        table_(columns()) {}

  int run() {
    const DeviceKind device_kind = backends_.front().executor->device_kind();
    const std::vector<std::string> problems = problems_of(options_);
    check_options(options_, problems, timekeeper_.on_gpu());
    std::vector<SpeedResult> results;
    ProgressLine progress;
    for (const std::string& problem : problems) {
      progress.say(fmt::format("checking {}", problem));
      const std::vector<Entrant> entrants =
          with_thread_counts(entrants_of(options_, problem, device_kind), options_.threads);
      const TimedProblem timed = timekeeper_.time(problem, entrants, [&](const Progress& p) {
        progress.say(
            fmt::format("{}, {}, round {} of {}", problem, p.contender, p.round + 1, options_.protocol.rounds));
      });
      progress.clear();
      for (const NotTimed& absent : timed.not_timed) note(timed.problem, absent);
      note(timed, fmt::format("{}/{}", ++timed_, problems.size()));
      if (!timed.entrants.empty()) {
        SpeedResult& result = results.emplace_back(SpeedResult{.problem = problem, .result = timed.result});
        result.flops = timed.flops;
        for (const TimedEntrant& entrant : timed.entrants)
          result.checks[entrant.name] = figures_of(entrant.check.judgement);
      }
    }
    const std::vector<CpuBarResult> bars = compare_with_cpu_bars(cpu_rows_, cpu_bars());
    if (options_.json)
      for (const CpuBarResult& bar : bars) print_json(lab::to_json(bar));
    else
      print_table(bars);
    if (!options_.peers.evidence.empty()) save(std::move(results));
    if (timekeeper_.on_gpu()) print_card_time(steady_clock().now() - begin_, options_.price_per_hour, options_.json);
    return status_.exit_status();
  }

 private:
  Protocol protocol_for(const Backend& backend) const {
    Protocol protocol = options_.protocol;
    if (backend.executor->device_kind() != DeviceKind::cpu) return protocol;
    if (!options_.samples_given) protocol.samples = cpu_samples;
    if (!options_.budget_given)
      protocol.budget_seconds = cpu_budget_seconds * static_cast<double>(std::max<size_t>(options_.threads.size(), 1));
    if (shows_threads() && !options_.any_cpu) protocol.quiet_cpus = most_threads_asked();
    return protocol;
  }

  bool shows_threads() const { return !options_.threads.empty(); }
  bool compares_threads() const { return options_.threads.size() > 1; }
  int most_threads_asked() const { return *std::ranges::max_element(options_.threads); }

  std::vector<Table::Column> columns() const {
    using Align = Table::Align;
    std::vector<Table::Column> columns{{"problem"}, {"contender"}};
    if (shows_threads()) columns.push_back({"threads", Align::right});
    columns.insert(
        columns.end(),
        {{"median", Align::right}, {"GFLOP/s", Align::right}, {"of peak", Align::right}, {"std", Align::right}});
    if (compares_threads())
      columns.push_back({fmt::format("speed over {}", counted(options_.threads.front(), "thread")), Align::right});
    columns.insert(columns.end(), {{"time over the first", Align::right}, {"verdict"}});
    return columns;
  }

  void note(const std::string& problem, const NotTimed& absent) {
    status_.note(absent);
    if (options_.json)
      print_json(to_json(problem, absent));
    else
      fmt::print("{}", text_of(problem, absent));
  }

  void note(const TimedProblem& timed, const std::string& number) {
    for (const TimedEntrant& entrant : timed.entrants) {
      if (options_.json)
        print_json(to_json(timed, entrant));
      else
        add_row(timed, entrant, number);
      if (!entrant.alarm.empty()) complain(timed.problem, fmt::format("alarm: {}: {}", entrant.name, entrant.alarm));
      // What no number of rounds would tell apart here.
      if (entrant.drowned)
        complain(timed.problem, fmt::format("unclear: {}: {}", entrant.name, entrant.against_first->verdict.reason));
      status_.note(entrant);
    }
    chose_cpus_ |= !timed.result.measurement.cpus.empty();
    if (timed.noise_floor && !timed.noise_floor->fit)
      complain(timed.problem, fmt::format("unfit to measure: {}", timed.noise_floor->reason));
    if (!timekeeper_.on_gpu())
      for (CpuRow& row : cpu_rows_of(timed, std::max<size_t>(options_.threads.size(), 1)))
        cpu_rows_.push_back(std::move(row));
  }

  void complain(const std::string& problem, const std::string& what) {
    complaints_.push_back(fmt::format("{}: {}", problem, what));
  }

  void add_row(const TimedProblem& timed, const TimedEntrant& entrant, const std::string& number) {
    const double flops_per_second = timed.flops / entrant.summary.seconds;
    const bool named_by_kernel = !entrant.kernel.empty() && entrant.config.empty();
    std::vector<std::string> cells{timed.problem, named_by_kernel ? entrant.kernel : entrant.name};
    if (shows_threads()) cells.push_back(std::to_string(entrant.threads));
    cells.push_back(
        duration_text(entrant.summary.seconds, entrant.summary.interval.lower, entrant.summary.interval.upper));
    cells.push_back(fmt::format("{:.0f}", flops_per_second / 1e9));
    cells.push_back(share_text(entrant.share()));
    const std::string share = cells.back();
    cells.push_back(fmt::format("{:.1f} %{}", 100 * entrant.summary.relative_std, entrant.summary.noisy ? " !" : ""));
    noisy_ |= entrant.summary.noisy;
    // The columns of the table are known when all rows are; whoever waits, or ends the run, sees each row as it comes.
    remark("{:6.1f} s  {}  {}, {}: {}, {} GFLOP/s, {}\n", steady_clock().now() - begin_, number, timed.problem,
           shows_threads() ? entrant.name : cells[1], cells[cells.size() - 4], cells[cells.size() - 3], share);
    if (compares_threads()) {
      const auto& over = entrant.over_first_count;
      cells.push_back(!over ? ""
                            : fmt::format("{:.2f}x [{:.2f}, {:.2f}]", over->ratio.estimate, over->ratio.interval.lower,
                                          over->ratio.interval.upper));
    }
    if (entrant.against_first) {
      const stats::Verdict& v = entrant.against_first->verdict;
      cells.push_back(fmt::format("{:.3f} [{:.3f}, {:.3f}]", v.estimate, v.interval.lower, v.interval.upper));
      cells.emplace_back(stats::name_of(v.outcome));
    }
    table_.add(std::move(cells));
  }

  void save(std::vector<SpeedResult> results) {
    const nlohmann::json record = stamped_speed_record(
        std::move(results), options_.kernels.empty() ? "" : options_.kernels.front(), timekeeper_.environment());
    if (!record.is_null())
      fmt::print(options_.json ? stderr : stdout, "evidence: {}\n", save_record(record, options_.peers.evidence));
  }

  void print_table(const std::vector<CpuBarResult>& bars) {
    fmt::print("{}", table_.text());
    if (!timekeeper_.on_gpu()) fmt::print("{}", timekeeper_.cpu_ceilings().text());
    if (chose_cpus_)
      fmt::print("threads ran on the {} of {} CPUs, chosen before each round\n",
                 most_threads_asked() > 1 ? fmt::format("{} quickest", most_threads_asked()) : "quickest",
                 usable_cpu_count());
    if (!bars.empty()) fmt::print("\n{}", cpu_bars_table(bars).text());
    if (noisy_) fmt::print("!: samples vary by more than 2 %\n");
    for (const std::string& complaint : complaints_) fmt::print("{}\n", complaint);
  }

  const BenchOptions& options_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  Timekeeper timekeeper_;
  Table table_;
  const double begin_ = steady_clock().now();
  size_t timed_ = 0;
  std::vector<CpuRow> cpu_rows_;
  std::vector<std::string> complaints_;
  bool chose_cpus_ = false;
  RunStatus status_;
  bool noisy_ = false;
};

}  // namespace

void add_bench(CLI::App& app, int& status) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "time kernels against each other in the same rounds");
  options->problems.add_to(*command);
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* about) {
    command->add_option(name, values, about)->allow_extra_args(false);
  };
  add_backend_option(*command, options->backend);
  list("--kernel", options->kernels, "a kernel by name; the first one is what others are compared with");
  list("--configurations", options->configurations, "a kernel by name, in every configuration it has for the problem");
  options->outside.add_to(*command, options->trials);
  options->peers.add_to(*command);
  add_whole_numbers(*command, "--threads", options->threads, 1, most_threads,
                    "on a CPU: numbers of threads, such as 1,2, in the same rounds");
  command->add_flag("--any-cpu", options->any_cpu,
                    "with --threads: they run wherever the system puts them, and not on the CPUs that are quickest "
                    "before each round");
  add_rounds(*command, options->protocol.rounds);
  add_samples(*command, options->protocol.samples, "of each contender in each round (by default 10, 25 on a CPU)");
  add_budget(*command, options->protocol.budget_seconds,
             "seconds per problem, 0 for none; lowers the samples (by default 2 with --peers, 10 a number of threads "
             "on a CPU)");
  command->add_option("--mode", options->protocol.mode, "on a GPU: steady, cold, pdl or host (docs/measuring.md)")
      ->check(CLI::IsMember({"cpu", "steady", "cold", "pdl", "host"}));
  add_seed(*command, options->seed, "of the inputs of the check");
  add_price(*command, options->price_per_hour);
  command->add_flag("--json", options->json, "one object per contender and line, with every sample");
  command->footer(
      "Everything is checked against float64 first, and not timed if it is wrong. docs/measuring.md says how it is "
      "timed,\n"
      "docs/your-kernel.md how to bring code of your own. Without a problem or set: --set mission.\n\n"
      "exit status: 0 all timed, 1 something was wrong, crashed or hung, 3 a problem was refused, 4 the machine is "
      "too\n"
      "noisy for a verdict, or a ceiling was exceeded\n\n"
      "examples:\n"
      "  attune bench --kernel cpu/avx512 --kernel cpu/unfused 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune bench --set small --budget 3 --json\n"
      "  attune bench --backend cpu --set cpu --threads 1,2\n"
      "  attune bench --against old/libattune.so\n"
      "  attune bench --set prefill --peers cudnn,flash --recorded ratios.jsonl --evidence evidence\n"
      "  attune bench --set latency --peers cudnn,flash --lines samples.jsonl\n"
      "  attune bench --set latency --mode cold --evidence evidence\n"
      "  attune bench --kernel any/fwd --configurations sm90/fwd_small 'fwd b1 h4/4 q64 k8192 d64 f16'");
  command->callback([options, command, &status] {
    options->budget_given = command->count("--budget") > 0;
    options->samples_given = command->count("--samples") > 0;
    options->mode_given = command->count("--mode") > 0;
    options->peers.python = options->trials.python;
    if (options->peers.asked()) {
      status = bench_with_peers(peer_bench_of(*options));
    } else {
      refuse_peer_options(options->peers);
      status = BenchCommand(*options).run();
    }
  });
}

}  // namespace attune::lab
