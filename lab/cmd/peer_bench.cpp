#include "lab/cmd/peer_bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/error.hpp"
#include "core/problem.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/cmd/speed_evidence.hpp"
#include "lab/cmd/timed_rows.hpp"
#include "lab/measure/contender.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/output.hpp"
#include "lab/report/speed_text.hpp"

namespace attune::lab {
namespace {

namespace fs = std::filesystem;

// Enough for ten samples of a contender in each of 15 rounds up to 2 ms a call, and for three of the longest.
constexpr double default_budget_seconds = 2;

class TemporaryFile {
 public:
  TemporaryFile() {
    std::string pattern = (fs::temp_directory_path() / "attune-peers-XXXXXX").string();
    const int descriptor = mkstemp(pattern.data());
    if (descriptor < 0)
      fail(ATTUNE_INTERNAL_ERROR, "cannot make a temporary file in {}", fs::temp_directory_path().string());
    close(descriptor);
    path = pattern;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  std::string path;
};

std::map<std::string, std::map<std::string, double>> checks_of(const nlohmann::json& line) {
  std::map<std::string, std::map<std::string, double>> checks;
  for (const std::string& kernel : line.at("kernels").get<std::vector<std::string>>())
    for (const auto& [name, value] : line.at("checks").at(kernel).items())
      if (value.is_number()) checks[kernel][name] = value.get<double>();
  return checks;
}

nlohmann::json record_of(const PeerBench& bench, const HostLines& lines, const RecordedRatios& recorded) {
  std::vector<SpeedResult> results = results_of(lines, recorded);
  if (results.empty()) return nullptr;
  return stamped_speed_record(std::move(results), bench.kernels.empty() ? "" : bench.kernels.front(),
                              lines.head.at("environment").get<Facts>());
}

void print_text(const std::vector<SpeedRow>& rows, const std::vector<BarResult>& results) {
  if (rows.empty()) return;
  fmt::print("{}over: time(peer) / time(Attune) inside rounds, with its interval; above 1 Attune is faster\n",
             speed_table(rows).text());
  if (std::ranges::any_of(rows, [](const SpeedRow& row) {
        return std::ranges::any_of(row.peers, [](const Against& peer) { return peer.derived; });
      }))
    fmt::print(
        "recorded: not measured here; cuDNN's time of this run by the ratio that was recorded for the problem\n");
  if (!results.empty()) fmt::print("\n{}", bars_table(results).text());
}

// In processes of their own, before the host has the GPU: those that pass at a problem take part in its rounds. Returns
// whether none was wrong or lost.
bool judge_plugins(const PeerBench& bench, PeerContenders& contenders) {
  bool all_passed = true;
  for (const std::string& path : bench.plugins) {
    bool passed_once = false;
    for (const std::string& problem : bench.problems) {
      Case what;
      what.problem = problem;
      const Entrant entrant{.plugin = path};
      const TrialAnswer answer = run_trial(to_json(CheckJob{"cuda", entrant, {what}, 0, -1}), bench.trials);
      if (answer.status == ATTUNE_NO_DEVICE) throw Error(*answer.status, answer.lost);
      Outcome outcome = answer.done ? answer.outcomes.front() : Outcome{what, {}, {}, {}, {}};
      outcome.of.option = entrant.option();
      if (answer.done && outcome.unsupported.empty() && outcome.ok()) {
        passed_once = true;
        continue;
      }
      contenders.without[problem].push_back(path);
      const auto kind = !answer.done                   ? NotTimed::Kind::lost
                        : !outcome.unsupported.empty() ? NotTimed::Kind::refused
                                                       : NotTimed::Kind::wrong;
      all_passed &= kind == NotTimed::Kind::refused;
      const std::string why = !answer.done ? answer.lost : outcome.unsupported;
      remark("{}", text_of(problem, NotTimed{entrant, kind, why, outcome}));
    }
    if (passed_once) contenders.plugins.push_back(path);
  }
  return all_passed;
}

// FlexAttention leaves everything else to SDPA (python/attune/lab/flex.py).
bool is_compiled_by_flex(const Problem& problem, const std::vector<std::string>& peers) {
  constexpr attune_features features = ATTUNE_WINDOW | ATTUNE_SOFTCAP | ATTUNE_SINK | ATTUNE_PACKED;
  return problem.has(features) &&
         std::ranges::any_of(peers, [](const std::string& peer) { return peer == "flex" || peer == "all"; });
}

}  // namespace

double predicted_seconds(const PeerBench& bench) {
  constexpr double start = 12, setting_up = 0.3, compiling_flex = 12;
  constexpr double check_base = 0.15, check_per_head = 1.5e-4, check_flops_per_second = 8e12;
  double seconds = start;
  for (const std::string& text : bench.problems) {
    const Problem problem = parse_problem(text);
    seconds += check_base + check_per_head * static_cast<double>(problem.batch * problem.heads_q) +
               useful_flops(problem) / check_flops_per_second;
    seconds += bench.protocol.budget_seconds + setting_up;
    if (is_compiled_by_flex(problem, bench.options.peers)) seconds += compiling_flex;
  }
  return seconds;
}

std::vector<SpeedResult> results_of(const HostLines& lines, const RecordedRatios& recorded) {
  std::vector<SpeedResult> results;
  for (const nlohmann::json& line : lines.problems) {
    if (line.at("result").is_null()) continue;
    SpeedResult& result = results.emplace_back();
    result.problem = line.at("problem");
    result.result.measurement = measurement_from_json(line.at("result").at("measurement"));
    result.result.analysis = analyse(result.result.measurement);
    if (line.at("flops").is_number()) result.flops = line.at("flops");
    result.checks = checks_of(line);
    result.recorded = recorded.of(result.problem);
  }
  return results;
}

std::string agreement_with(const RecordedRatios& recorded, const std::vector<SpeedRow>& rows) {
  constexpr double long_enough = 100e-6;  // below, placement decides a few per cent
  struct Farthest {
    double apart = 0;
    std::string where;
    void meet(double ratio, const std::string& at) {
      if (!where.empty() && std::abs(ratio - 1) < std::abs(apart)) return;
      apart = ratio - 1;
      where = at;
    }
    std::string text() const { return fmt::format("{:+.1f} %: {}", 100 * apart, where); }
  };
  // A card at its power limit gives each contender its own clock, and another one beside other contenders.
  Farthest in_time, in_cycles;
  int compared = 0;
  for (const SpeedRow& row : rows) {
    const Against* cudnn = row.find("cudnn");
    if (cudnn == nullptr || cudnn->derived || cudnn->seconds < long_enough) continue;
    for (const auto& [peer, speed] : recorded.measurable(row.problem)) {
      const Against* here = row.find(peer);
      if (here == nullptr) continue;
      ++compared;
      const std::string where = fmt::format("{} at '{}'", peer, row.problem);
      const double ratio = cudnn->seconds / here->seconds / speed[0];
      in_time.meet(ratio, where);
      if (here->clock_hz > 0) in_cycles.meet(ratio * cudnn->clock_hz / here->clock_hz, where);
    }
  }
  if (compared == 0) return "";
  std::string text = fmt::format("recorded ratios to cudnn above 100 us: {} compared, the farthest apart by {}",
                                 compared, in_time.text());
  if (!in_cycles.where.empty()) text += "; in clock cycles by " + in_cycles.text();
  return text;
}

std::vector<std::string> remarks_on(const HostLines& lines) {
  std::vector<std::string> remarks;
  std::vector<std::pair<std::string, int>> absent;  // the same reason once, with the number of problems
  for (const nlohmann::json& line : lines.problems) {
    const std::string problem = line.at("problem");
    for (const auto& [name, what] : line.at("wrong").items())
      remarks.push_back(
          fmt::format("not timed, because it is wrong: {}: {}: {}", name, problem, what.get<std::string>()));
    if (const std::string failed = line.at("failed"); !failed.empty())
      remarks.push_back(fmt::format("failed: {}: {}", problem, failed));
    for (const auto& [name, why] : line.at("absent").items()) {
      const std::string reason = fmt::format("{}: {}", name, why.get<std::string>());
      const auto known = std::ranges::find(absent, reason, &std::pair<std::string, int>::first);
      if (known == absent.end())
        absent.emplace_back(reason, 1);
      else
        ++known->second;
    }
  }
  for (const auto& [reason, count] : absent)
    remarks.push_back(fmt::format("absent: {}{}", reason,
                                  static_cast<size_t>(count) == lines.problems.size()
                                      ? ""
                                      : fmt::format(" (at {} of {} problems)", count, lines.problems.size())));
  return remarks;
}

int bench_with_peers(PeerBench bench) {
  const RecordedRatios recorded =
      bench.options.recorded.empty() ? RecordedRatios{} : RecordedRatios::from_file(bench.options.recorded);
  if (bench.protocol.budget_seconds <= 0) bench.protocol.budget_seconds = default_budget_seconds;
  if (!bench.options.evidence.empty()) try_folder("--evidence", bench.options.evidence);
  if (!bench.options.lines.empty()) try_folder_of("--lines", bench.options.lines);
  const TemporaryFile own_lines;
  const std::string lines_path = bench.options.lines.empty() ? own_lines.path : bench.options.lines;
  PeerContenders contenders{bench.kernels, {}, {}};
  const double begin = steady_clock().now();
  const bool all_passed = judge_plugins(bench, contenders);
  const PeerRun run = peer_run(bench.options, bench.problems, contenders, bench.protocol, lines_path);
  remark("{}: checked first, then timed; about {:.0f} s\n",
         counted(static_cast<int64_t>(bench.problems.size()), "problem"), predicted_seconds(bench));
  int status = exit_ok;
  std::exception_ptr ended;  // what is known by then is shown all the same
  try {
    status = run_peers(run);
  } catch (const Error&) {
    ended = std::current_exception();
  }
  const HostLines lines = read_host_lines(lines_path);
  const nlohmann::json record = record_of(bench, lines, recorded);
  const std::vector<SpeedRow> rows = record.is_null() ? std::vector<SpeedRow>{} : speed_rows(record);
  const std::vector<BarResult> results = compare_with_bars(rows, bars());
  const std::vector<std::string> remarks = remarks_on(lines);
  if (bench.json) {
    for (const SpeedRow& row : rows) print_json(to_json(row));
    for (const BarResult& result : results) print_json(to_json(result));
  } else {
    print_text(rows, results);
    if (const std::string agreement = agreement_with(recorded, rows); !agreement.empty())
      fmt::print("\n{}\n", agreement);
    for (const SpeedRow& row : rows)
      if (!row.fit) fmt::print("unfit to measure: {}: {}\n", row.problem, row.noise);
  }
  for (const std::string& line : remarks) fmt::print(bench.json ? stderr : stdout, "{}\n", line);
  if (!bench.options.evidence.empty() && !record.is_null())
    fmt::print(bench.json ? stderr : stdout, "evidence: {}\n", save_record(record, bench.options.evidence));
  print_card_time(steady_clock().now() - begin, bench.price_per_hour, bench.json);
  if (ended) std::rethrow_exception(ended);
  return all_passed ? status : exit_failed_check;
}

}  // namespace attune::lab
