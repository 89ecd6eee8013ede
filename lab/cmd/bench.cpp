// attune bench: times kernels against each other in the same rounds, after each has passed its check.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "dispatch/select.hpp"
#include "lab/check/report.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/peer_bench.hpp"
#include "lab/cmd/speed_evidence.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

struct BenchOptions {
  ProblemArguments problems;
  std::vector<std::string> kernels, configurations, against, plugins;
  PeerOptions peers;
  std::string backend;
  Protocol protocol;
  uint64_t seed = 1;
  bool json = false;
};

// The kernel once for each configuration it has for the problem, the one it would choose first.
std::vector<Entrant> in_every_configuration(const std::string& name, const std::string& text, DeviceKind device_kind) {
  const Context context(attune_options{});
  Problem problem = parse_problem(text);
  problem.device_kind = device_kind;
  const Selection selection = select(problem, context, name);
  if (selection.chosen == nullptr) fail(ATTUNE_UNSUPPORTED, "{}: {}", text, selection.why);
  std::vector<Entrant> entrants;
  for (const Configuration& c : selection.chosen->configurations(problem, context))
    entrants.push_back({fmt::format("{} {}", name, c.text), name, "", "", c.text});
  if (entrants.empty()) entrants.push_back({name, name, "", "", ""});
  return entrants;
}

std::vector<Entrant> entrants_of(const BenchOptions& options, const std::string& problem, DeviceKind device_kind) {
  std::vector<Entrant> entrants;
  for (const std::string& kernel : options.kernels) entrants.push_back({kernel, kernel, "", "", ""});
  for (const std::string& kernel : options.configurations)
    for (Entrant& entrant : in_every_configuration(kernel, problem, device_kind))
      entrants.push_back(std::move(entrant));
  if (entrants.empty()) entrants.push_back({"attune", "", "", "", ""});
  for (const std::string& path : options.against) entrants.push_back({path, "", path, "", ""});
  for (const std::string& path : options.plugins) entrants.push_back({path, "", "", path, ""});
  return entrants;
}

std::vector<std::string> problems_of(const BenchOptions& options) {
  ProblemArguments arguments = options.problems;
  if (arguments.none()) arguments.sets = {"mission"};
  return arguments.resolve();
}

PeerBench peer_bench_of(const BenchOptions& options) {
  const auto refuse = [](bool given, const char* option, const char* why) {
    if (given) fail(ATTUNE_INVALID_ARGUMENT, "{} does not go with --peers: {}", option, why);
  };
  refuse(!options.against.empty(), "--against", "their host loads one libattune.so; compare two without --peers");
  refuse(!options.plugins.empty(), "--plugin", "their host is Python; measure a plug-in without --peers");
  refuse(options.backend == "cpu", "--backend cpu", "they run on a GPU");
  refuse(!options.configurations.empty(), "--configurations", "their host calls kernels as users do");
  return {options.peers, problems_of(options), options.kernels, options.protocol, options.json};
}

void refuse_peer_options(const PeerOptions& peers) {
  for (const auto& [option, value] : {std::pair("--lines", &peers.lines), std::pair("--recorded", &peers.recorded),
                                      std::pair("--triton", &peers.triton)})
    if (!value->empty()) fail(ATTUNE_INVALID_ARGUMENT, "{} needs --peers", option);
}

// What a run without peers cannot be asked for.
void check_options(const BenchOptions& options, const std::vector<std::string>& problems, bool on_gpu) {
  for (const std::vector<std::string>* names : {&options.kernels, &options.configurations})
    for (const std::string& name : *names)
      if (find_kernel(name) == nullptr)
        fail(ATTUNE_INVALID_ARGUMENT, "there is no kernel '{}'; `attune info` lists them", name);
  const bool one = options.kernels.size() <= 1 && options.configurations.empty() && options.against.empty() &&
                   options.plugins.empty();
  if (!options.peers.evidence.empty() && !(one && on_gpu))
    fail(ATTUNE_INVALID_ARGUMENT, "--evidence needs --peers, or one kernel of this library alone on a GPU");
  if (options.protocol.mode != name_of(GpuMode::pdl)) return;
  for (const std::string& problem : problems)
    if (!parse_problem(problem).has(ATTUNE_OVERLAP))
      fail(ATTUNE_INVALID_ARGUMENT,
           "--mode pdl: '{}' does not ask to overlap; add the word `overlap`, or take --set latency-overlap", problem);
}

std::map<std::string, double> figures_of(const Judgement& judgement) {
  return {{"rel_rms", judgement.rel_rms}, {"rel_rms_bound", judgement.rel_rms_bound},
          {"max_ulp", judgement.max_ulp}, {"max_ulp_bound", judgement.max_ulp_bound},
          {"lse_err", judgement.lse_err}, {"lse_bound", judgement.lse_bound}};
}

// Microseconds, by round.
nlohmann::json samples_json(const std::vector<std::vector<Sample>>& rounds) {
  nlohmann::json json = nlohmann::json::array();
  for (const auto& round : rounds) {
    nlohmann::json samples = nlohmann::json::array();
    for (const Sample& sample : round) samples.push_back(sample.seconds * 1e6);
    json.push_back(std::move(samples));
  }
  return json;
}

// A ceiling with what its probe measured in the same rounds; the share follows from it.
nlohmann::json probe_json(const TimedProblem& timed, const Share& share) {
  nlohmann::json json = share_json(share);
  const auto& recordings = timed.result.measurement.recordings;
  json["contender"] = share.probe;
  json["work"] = timed.probe_work.at(share.probe);
  json["samples"] = samples_json(std::ranges::find(recordings, share.probe, &Recording::name)->rounds);
  return json;
}

nlohmann::json to_json(const TimedProblem& timed, const TimedEntrant& entrant) {
  nlohmann::json json = lab::to_json(entrant.check);
  json["problem"] = timed.problem;
  json["contender"] = entrant.name;
  json["us"] = entrant.summary.seconds * 1e6;
  json["lo"] = entrant.summary.interval.lower * 1e6;
  json["hi"] = entrant.summary.interval.upper * 1e6;
  json["gflops"] = timed.flops / entrant.summary.seconds / 1e9;
  json.update(share_json(entrant.share()));
  json["relative_std"] = entrant.summary.relative_std;
  json["samples"] = samples_json(entrant.rounds);
  if (entrant.threads > 0) {
    json["threads"] = entrant.threads;
    json["probes"] = nlohmann::json::array();
    for (const Share& share : entrant.shares) json["probes"].push_back(probe_json(timed, share));
  }
  if (entrant.against_first) {
    const stats::Verdict& verdict = entrant.against_first->verdict;
    json["ratio"] = verdict.estimate;
    json["ratio_lo"] = verdict.interval.lower;
    json["ratio_hi"] = verdict.interval.upper;
    json["verdict"] = stats::name_of(verdict.outcome);
  }
  if (timed.noise_floor) {
    json["fit"] = timed.noise_floor->fit;
    json["noise"] = timed.noise_floor->reason;
  }
  return json;
}

class BenchCommand {
 public:
  explicit BenchCommand(const BenchOptions& options)
      : options_(options),
        threads_(lab_thread_options()),
        backends_(backends_named(options.backend, threads_)),
        timekeeper_(backends_.front(), threads_, options.protocol, options.seed, true) {}

  int run() {
    const DeviceKind device_kind = backends_.front().executor->device_kind();
    const std::vector<std::string> problems = problems_of(options_);
    check_options(options_, problems, timekeeper_.on_gpu());
    std::vector<SpeedResult> results;
    ProgressLine progress;
    for (const std::string& problem : problems) {
      progress.say(fmt::format("checking {}", problem));
      const std::vector<Entrant> entrants = entrants_of(options_, problem, device_kind);
      const TimedProblem timed = timekeeper_.time(problem, entrants, [&](const Progress& p) {
        progress.say(
            fmt::format("{}, {}, round {} of {}", problem, p.contender, p.round + 1, options_.protocol.rounds));
      });
      progress.clear();
      if (timed.failed) refuse(*timed.failed);
      for (const TimedEntrant& entrant : timed.entrants) {
        if (options_.json)
          print_json(to_json(timed, entrant));
        else
          add_row(timed, entrant);
      }
      if (timed.noise_floor && !timed.noise_floor->fit)
        complaints_.push_back(fmt::format("{}: {}", problem, timed.noise_floor->reason));
      if (!timed.failed) {
        SpeedResult& result = results.emplace_back(SpeedResult{.problem = problem, .result = timed.result});
        result.flops = timed.flops;
        for (const TimedEntrant& entrant : timed.entrants)
          result.checks[entrant.name] = figures_of(entrant.check.judgement);
      }
    }
    if (!options_.json) print_table();
    if (!options_.peers.evidence.empty()) save(std::move(results));
    return failed_ ? exit_failed_check : exit_ok;
  }

 private:
  void refuse(const Outcome& failed) {
    failed_ = true;
    if (options_.json)
      print_json(lab::to_json(failed));
    else
      fmt::print("not timed, because it is wrong:\n{}", failure_text(failed, failed.of));
  }

  void add_row(const TimedProblem& timed, const TimedEntrant& entrant) {
    const double flops_per_second = timed.flops / entrant.summary.seconds;
    std::string ratio, verdict;
    if (entrant.against_first) {
      const stats::Verdict& v = entrant.against_first->verdict;
      ratio = fmt::format("{:.3f} [{:.3f}, {:.3f}]", v.estimate, v.interval.lower, v.interval.upper);
      verdict = stats::name_of(v.outcome);
    }
    const bool named_by_kernel = !entrant.kernel.empty() && entrant.config.empty();
    table_.add({timed.problem, named_by_kernel ? entrant.kernel : entrant.name,
                duration_text(entrant.summary.seconds, entrant.summary.interval.lower, entrant.summary.interval.upper),
                fmt::format("{:.0f}", flops_per_second / 1e9), share_text(entrant.share()), ratio, verdict});
  }

  void save(std::vector<SpeedResult> results) {
    const nlohmann::json record = stamped_speed_record(
        std::move(results), options_.kernels.empty() ? "" : options_.kernels.front(), timekeeper_.environment());
    if (!record.is_null())
      fmt::print(options_.json ? stderr : stdout, "evidence: {}\n", save_record(record, options_.peers.evidence));
  }

  void print_table() {
    fmt::print("{}", table_.text());
    if (!timekeeper_.on_gpu()) fmt::print("{}", timekeeper_.cpu_ceilings().text());
    for (const std::string& complaint : complaints_) fmt::print("unfit to measure: {}\n", complaint);
  }

  const BenchOptions& options_;
  cpu::Threads threads_;
  std::vector<Backend> backends_;
  Timekeeper timekeeper_;
  Table table_{{{"problem"},
                {"contender"},
                {"median", Table::Align::right},
                {"GFLOP/s", Table::Align::right},
                {"of peak", Table::Align::right},
                {"time over the first", Table::Align::right},
                {"verdict"}}};
  std::vector<std::string> complaints_;
  bool failed_ = false;
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
  list("--against", options->against, "another libattune.so, in the same rounds");
  list("--plugin", options->plugins, "a shared library with attune_contender(), in the same rounds");
  options->peers.add_to(*command);
  command->add_option("--rounds", options->protocol.rounds, "of measurement");
  command->add_option("--samples", options->protocol.samples, "of each contender in each round");
  command->add_option("--budget", options->protocol.budget_seconds,
                      "seconds per problem; lowers the samples (2 with --peers)");
  command->add_option("--mode", options->protocol.mode, "on a GPU: steady, cold, pdl or host (docs/measuring.md)")
      ->check(CLI::IsMember({"cpu", "steady", "cold", "pdl", "host"}));
  command->add_option("--seed", options->seed, "of the inputs of the check");
  command->add_flag("--json", options->json, "one object per contender and line, with every sample");
  command->footer(
      "A kernel is checked against float64 first, and not timed if it is wrong. docs/measuring.md says how it is "
      "timed.\n"
      "Without a problem or set: --set mission.\n\n"
      "examples:\n"
      "  attune bench --kernel cpu/avx512 --kernel cpu/unfused 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune bench --set small --budget 3 --json\n"
      "  attune bench --against old/libattune.so\n"
      "  attune bench --set prefill --peers cudnn,flash --recorded ratios.jsonl --evidence evidence\n"
      "  attune bench --set latency --peers cudnn,flash --lines samples.jsonl\n"
      "  attune bench --set latency --mode cold --evidence evidence\n"
      "  attune bench --kernel any/fwd --configurations sm90/fwd_small 'fwd b1 h4/4 q64 k8192 d64 f16'");
  command->callback([options, &status] {
    if (options->peers.asked()) {
      status = bench_with_peers(peer_bench_of(*options));
    } else {
      refuse_peer_options(options->peers);
      status = BenchCommand(*options).run();
    }
  });
}

}  // namespace attune::lab
