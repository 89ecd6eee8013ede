// attune ladder: the road from a scalar kernel to the library's own, each step checked, all measured in the same
// rounds, and what was predicted compared with what came.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>

#include "core/error.hpp"
#include "gpu/driver.hpp"
#include "jit/nvrtc.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/options.hpp"
#include "lab/cmd/speed_evidence.hpp"
#include "lab/cmd/timed_rows.hpp"
#include "lab/cmd/timing.hpp"
#include "lab/evidence/record.hpp"
#include "lab/ladder/climb.hpp"
#include "lab/ladder/ladder_text.hpp"
#include "lab/ladder/resources.hpp"
#include "lab/output.hpp"
#include "lab/progress.hpp"
#include "lab/sets.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

struct LadderOptions {
  std::vector<std::string> problems, sets, archs, dtypes;
  std::string from, write, evidence;
  Protocol protocol;
  TrialOptions trials;
  std::optional<double> price_per_hour;
  bool resources = false, json = false;
};

// A folder of its own for the files of the ladder, gone with the object.
class RungFolder {
 public:
  RungFolder() : path_(std::filesystem::temp_directory_path() / "attune-ladder-XXXXXX") {
    std::string name = path_.string();
    if (mkdtemp(name.data()) == nullptr)
      fail(ATTUNE_INVALID_ARGUMENT, "TMPDIR: no folder can be made in {}", path_.parent_path().string());
    path_ = name;
    write_ladder(path_.string());
  }
  RungFolder(const RungFolder&) = delete;
  RungFolder& operator=(const RungFolder&) = delete;
  ~RungFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::vector<std::string> sets_of(const LadderOptions& options) {
  const std::vector<std::string> predicted = predicted_sets(builtin_ladder());
  for (const std::string& set : options.sets)
    if (std::ranges::find(predicted, set) == predicted.end())
      fail(ATTUNE_INVALID_ARGUMENT, "--set is '{}'; predictions are for {}", set, fmt::join(predicted, ", "));
  return options.sets.empty() ? predicted : options.sets;
}

// Those of the sets, or of these the ones that were asked for.
std::vector<std::string> asked_problems(const LadderOptions& options) {
  std::vector<std::string> all, asked;
  for (const std::string& set : sets_of(options))
    for (const std::string& problem : find_set(set).problems) all.push_back(problem);
  for (const std::string& text : options.problems) {
    const std::string problem = to_string(parse_problem(text));
    if (std::ranges::find(all, problem) == all.end())
      fail(ATTUNE_INVALID_ARGUMENT, "'{}' is in none of {}, which predictions are for", problem,
           fmt::join(sets_of(options), ", "));
    asked.push_back(problem);
  }
  return asked.empty() ? all : asked;
}

void print_climbs(const LadderOptions& options, const std::vector<LadderProblem>& problems) {
  std::vector<Climb> climbs;
  for (const std::string& set : sets_of(options))
    if (Climb climb = climb_of(builtin_ladder(), set, problems); !climb.steps.empty())
      climbs.push_back(std::move(climb));
  if (options.json)
    for (const nlohmann::json& line : climb_json(climbs)) print_json(line);
  else
    fmt::print("{}", climb_text(climbs, false));
}

int show_record(const LadderOptions& options) {
  print_climbs(options, ladder_problems(load_record(options.from), options.from));
  return exit_ok;
}

int show_resources(const LadderOptions& options) {
  const auto asked_or = [](const std::vector<std::string>& asked, const auto& all) {
    return asked.empty() ? std::vector<std::string>(all.begin(), all.end()) : asked;
  };
  const std::vector<std::string> archs = asked_or(options.archs, ladder_archs);
  const std::vector<std::string> dtypes = asked_or(options.dtypes, ladder_dtypes);
  const int newest = gpu::find_driver() == nullptr ? INT_MAX : gpu::driver().major();
  const jit::Compiler& compiler = jit::find_nvrtc(newest);
  const RungFolder folder;
  using Align = Table::Align;
  Table table({{"rung"},
               {"compiled for"},
               {"for"},
               {"registers", Align::right},
               {"at most", Align::right},
               {"spilled bytes", Align::right},
               {"shared bytes", Align::right},
               {"threads", Align::right},
               {"blocks per SM", Align::right},
               {"occupancy", Align::right},
               {""}});
  bool good = true;
  ProgressLine progress;
  for (const Rung& rung : builtin_ladder().rungs) {
    if (rung.registers == 0) continue;
    progress.say(fmt::format("compiling {}", rung.name));
    for (const RungResources& each : resources_of_rung(rung, folder.path(), compiler, archs, dtypes)) {
      const KernelResources& r = each.resources;
      const int spilled = r.spill_store_bytes + r.spill_load_bytes;
      good = good && each.complaint.empty();
      if (options.json)
        print_json({{"rung", rung.name},
                    {"arch", r.arch},
                    {"dtype", each.dtype},
                    {"dim", each.dim},
                    {"registers", r.registers},
                    {"most_registers", rung.registers},
                    {"spilled_bytes", spilled},
                    {"stack_bytes", r.stack_bytes},
                    {"shared_bytes", r.static_shared_bytes + r.dynamic_shared_bytes},
                    {"most_shared_bytes", rung.shared_bytes},
                    {"threads", r.threads},
                    {"blocks_per_sm", r.blocks_per_sm},
                    {"occupancy", r.occupancy},
                    {"complaint", each.complaint},
                    {"compiler", compiler.version()}});
      table.add({rung.name, r.arch, fmt::format("d{} {}", each.dim, each.dtype), std::to_string(r.registers),
                 std::to_string(rung.registers), std::to_string(spilled),
                 std::to_string(r.static_shared_bytes + r.dynamic_shared_bytes), std::to_string(r.threads),
                 std::to_string(r.blocks_per_sm), fmt::format("{:.0f} %", 100 * r.occupancy), each.complaint});
    }
  }
  progress.clear();
  if (!options.json) fmt::print("{}", table.text());
  return good ? exit_ok : exit_failed_check;
}

class LadderCommand {
 public:
  explicit LadderCommand(const LadderOptions& options) : options_(options) {}

  int run() {
    const std::vector<std::string> problems = asked_problems(options_);
    if (!options_.evidence.empty()) try_folder("--evidence", options_.evidence);
    cpu::Threads threads(lab_thread_options());
    std::vector<Backend> backends = make_backends(threads);
    const auto gpu = std::ranges::find(backends, "cuda", &Backend::name);
    if (gpu == backends.end()) {
      remark(
          "attune ladder: there is no GPU here, so that no rung can be checked or measured; --resources needs none, "
          "and "
          "--from shows a record\n");
      return exit_unsupported;
    }
    Timekeeper timekeeper(*gpu, threads, options_.protocol, 1, true, options_.trials);
    const RungFolder folder;
    const std::vector<Entrant> entrants = ladder_entrants(builtin_ladder(), folder.path());
    for (const std::string& problem : problems) climb(timekeeper, problem, entrants);
    print_climbs(options_, problems_);
    if (!options_.evidence.empty()) save(timekeeper);
    print_card_time(steady_clock().now() - begin_, options_.price_per_hour, options_.json);
    return status_.exit_status();
  }

 private:
  void climb(Timekeeper& timekeeper, const std::string& problem, const std::vector<Entrant>& entrants) {
    ProgressLine progress;
    const TimedProblem timed = timekeeper.time(problem, entrants, [&](const Progress& p) {
      progress.say(fmt::format("{}, {}, round {} of {}", problem, p.contender, p.round + 1, options_.protocol.rounds));
    });
    progress.clear();
    for (const NotTimed& absent : timed.not_timed) {
      status_.note(absent);
      if (options_.json)
        print_json(to_json(problem, absent));
      else
        fmt::print("{}", text_of(problem, absent));
    }
    for (const TimedEntrant& entrant : timed.entrants) {
      if (options_.json) print_json(to_json(timed, entrant));
      status_.note(entrant);
      if (!entrant.alarm.empty()) remark("alarm: {}: {}: {}\n", problem, entrant.name, entrant.alarm);
    }
    if (timed.noise_floor && !timed.noise_floor->fit) {
      status_.note_noise();
      remark("unfit to measure: {}: {}\n", problem, timed.noise_floor->reason);
    }
    flush_output();
    if (timed.entrants.empty()) return;
    problems_.push_back({problem, timed.result.measurement});
    SpeedResult& result = results_.emplace_back(SpeedResult{.problem = problem, .result = timed.result});
    result.flops = timed.flops;
    for (const TimedEntrant& entrant : timed.entrants)
      result.checks[entrant.name] = figures_of(entrant.check.judgement);
  }

  void save(const Timekeeper& timekeeper) {
    const nlohmann::json record =
        stamped_speed_record(std::move(results_), "", timekeeper.environment(), ladder_stamps());
    if (!record.is_null())
      fmt::print(options_.json ? stderr : stdout, "evidence: {}\n", save_record(record, options_.evidence));
  }

  const LadderOptions& options_;
  const double begin_ = steady_clock().now();
  std::vector<LadderProblem> problems_;
  std::vector<SpeedResult> results_;
  RunStatus status_;
};

int write_files(const std::string& folder) {
  try_folder("--write", folder);
  write_ladder(folder);
  remark("{}: written; next: attune try {}/{}\n", folder, folder, file_of_rung(builtin_ladder().rungs.front().name));
  return exit_ok;
}

}  // namespace

void add_ladder(CLI::App& app, int& status) {
  auto options = std::make_shared<LadderOptions>();
  options->protocol.budget_seconds = 60;
  CLI::App* command = app.add_subcommand(
      "ladder", "from a scalar kernel to the library's: what each step gains, and what was predicted");
  command->add_option("problems", options->problems, "only these problems of the sets mission and h100");
  command->add_option("--set", options->sets, "only at this set, mission or h100")->allow_extra_args(false);
  CLI::Option* resources = command->add_flag(
      "--resources", options->resources,
      "only registers, spills, shared memory and occupancy of every rung for sm_80, sm_89 and sm_90a: needs no GPU");
  command->add_option("--arch", options->archs, "with --resources: only sm_80, sm_89 or sm_90a")
      ->allow_extra_args(false)
      ->check(CLI::IsMember(ladder_archs))
      ->needs(resources);
  command->add_option("--dtype", options->dtypes, "with --resources: only f16 or bf16")
      ->allow_extra_args(false)
      ->check(CLI::IsMember(ladder_dtypes))
      ->needs(resources);
  CLI::Option* from = command->add_option("--from", options->from, "measure nothing: show this record of evidence");
  CLI::Option* write = command->add_option("--write", options->write, "write the rungs' files into this folder");
  resources->excludes(from)->excludes(write);
  from->excludes(write);
  command->add_option("--evidence", options->evidence, "write a record of what was measured into this folder");
  add_limit(*command, options->trials);
  add_rounds(*command, options->protocol.rounds);
  add_samples(*command, options->protocol.samples, "of each rung in each round");
  add_budget(*command, options->protocol.budget_seconds, "seconds per problem, 0 for none; lowers the samples");
  add_price(*command, options->price_per_hour);
  command->add_flag("--json", options->json, "one object per line");
  command->footer(
      "Every rung is a kernel file as `attune try` takes it (docs/your-kernel.md); docs/ladder.md walks through them.\n"
      "A rung is checked against float64 before it is timed, and all are measured in the same rounds, beside the\n"
      "library's own kernels and variants of the last rung that lack one thing each.\n\n"
      "exit status: 0 all right and timed, 1 a rung is wrong, was lost or needs more than it may, 2 bad input,\n"
      "3 no GPU here, or no cuBLAS for the unfused rung, 4 the machine is too noisy, or a ceiling was exceeded\n\n"
      "examples:\n"
      "  attune ladder\n"
      "  attune ladder --set mission --evidence evidence/ladder\n"
      "  attune ladder 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune ladder --from evidence/ladder/speed-20261201-0a1b2c3d.json --json\n"
      "  attune ladder --resources --arch sm_90a\n"
      "  attune ladder --write rungs");
  command->callback([options, &status] {
    if (!options->write.empty())
      status = write_files(options->write);
    else if (!options->from.empty())
      status = show_record(*options);
    else if (options->resources)
      status = show_resources(*options);
    else
      status = LadderCommand(*options).run();
  });
}

}  // namespace attune::lab
