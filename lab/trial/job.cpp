#include "lab/trial/job.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <limits>

#include "core/error.hpp"
#include "lab/check/backend.hpp"
#include "lab/check/report.hpp"
#include "lab/measure/cuda_gpu.hpp"
#include "lab/measure/result_json.hpp"
#include "lab/trial/callee_executor.hpp"

namespace attune::lab {
namespace {

constexpr double seconds_between_lines = 1;

class Lines {
 public:
  explicit Lines(int descriptor) : descriptor_(descriptor) {}

  void at(int entrant, const std::string& contender = "", int round = 0) {
    const double now = steady_clock().now();
    if (entrant == at_ && contender == contender_ && now - said_ < seconds_between_lines) return;
    at_ = entrant;
    contender_ = contender;
    said_ = now;
    say({{"at", entrant}, {"contender", contender}, {"round", round}});
  }

  // Written at once: whoever is named may end the process with its next step.
  void say(const nlohmann::json& line) const {
    const std::string text = line.dump() + "\n";
    for (size_t done = 0; done < text.size();) {
      const ssize_t written = write(descriptor_, text.data() + done, text.size() - done);
      if (written < 0) fail(ATTUNE_INTERNAL_ERROR, "nobody reads what this process answers");
      done += static_cast<size_t>(written);
    }
  }

 private:
  int descriptor_;
  int at_ = -2;
  std::string contender_;
  double said_ = 0;
};

Backend backend_called(const std::string& name, cpu::Threads& threads) {
  std::vector<Backend> all = make_backends(threads);
  const auto found = std::ranges::find(all, name, &Backend::name);
  if (found == all.end()) fail(ATTUNE_NO_DEVICE, "there is no backend '{}' here", name);
  return std::move(*found);
}

// What all jobs of a process use. It is never taken apart: the process ends by a signal.
struct Workshop {
  cpu::Threads threads{attune_options{}};
  std::unique_ptr<CudaGpu> gpu;
  std::optional<Backend> backend;  // of a check

  CudaGpu* gpu_if(bool wanted) {
    if (wanted && !gpu) gpu = std::make_unique<CudaGpu>();
    return wanted ? gpu.get() : nullptr;
  }
};

Workshop& workshop() {
  static Workshop& only = *new Workshop;
  return only;
}

void serve_check(const nlohmann::json& job, Lines& lines) {
  cpu::Threads& threads = workshop().threads;
  std::optional<Backend>& kept = workshop().backend;
  if (!kept || kept->name != job.at("backend").get<std::string>()) kept = backend_called(job.at("backend"), threads);
  Backend& backend = *kept;
  const bool on_gpu = backend.executor->device_kind() == DeviceKind::cuda;
  const std::unique_ptr<Executor> executor =
      make_callee_executor(entrant_from_json(job.at("entrant")), workshop().gpu_if(on_gpu),
                           [&](bool at_work) { lines.at(at_work ? 0 : -1); });
  RowPolicy rows = backend.rows;
  if (const double flops = job.at("all_rows_flops"); flops >= 0 && !on_gpu)
    rows.all_rows_flops = std::min(rows.all_rows_flops, flops);
  if (const int64_t most = job.at("rows"); most > 0) rows = {0, most};
  Checker checker(*executor, *backend.reference, threads, rows);
  for (const nlohmann::json& each : job.at("cases")) {
    Case what;
    what.problem = each.at("problem");
    what.input = input_kind_from(each.at("input").get<std::string>());
    what.seed = each.at("seed");
    what.storage = storage_from(each.at("storage").get<std::string>());
    lines.say({{"outcome", to_json(checker.check(what))}});
  }
  lines.say({{"done", true}});
}

void serve_rounds(const nlohmann::json& job, Lines& lines) {
  const bool on_gpu = job.at("backend") == "cuda";
  RoundsRequest request;
  request.problem = parse_problem(job.at("problem").get<std::string>());
  request.problem.device_kind = on_gpu ? DeviceKind::cuda : DeviceKind::cpu;
  for (const nlohmann::json& entrant : job.at("entrants")) request.entrants.push_back(entrant_from_json(entrant));
  request.ceilings = job.at("ceilings");
  request.protocol = protocol_with(job.at("protocol"));
  request.twin = job.at("twin");
  const std::string twin = request.entrants.front().name + " (A/A)";
  const auto index_of = [&](std::string_view name) {
    if (name == twin) return 0;
    const auto found = std::ranges::find(request.entrants, name, &Entrant::name);
    return found == request.entrants.end() ? -1 : static_cast<int>(found - request.entrants.begin());
  };
  ThreadPools pools(workshop().threads);
  const Rounds rounds = run_rounds(
      request, workshop().gpu_if(on_gpu), pools,
      [&](std::optional<size_t> i) { lines.at(i ? static_cast<int>(*i) : -1); },
      [&](const Progress& now) { lines.at(index_of(now.contender), std::string(now.contender), now.round); });
  lines.at(-1);
  lines.say({{"rounds", to_json(rounds)}});
}

}  // namespace

nlohmann::json to_json(const CheckJob& job) {
  nlohmann::json cases = nlohmann::json::array();
  for (const Case& what : job.cases)
    cases.push_back({{"problem", what.problem},
                     {"input", name_of(what.input)},
                     {"seed", what.seed},
                     {"storage", name_of(what.storage)}});
  return {{"task", "check"}, {"backend", job.backend}, {"entrant", to_json(job.entrant)},
          {"cases", cases},  {"rows", job.rows},       {"all_rows_flops", job.all_rows_flops}};
}

nlohmann::json to_json(const RoundsJob& job) {
  nlohmann::json protocol = to_json(job.protocol);
  protocol.erase("version");
  nlohmann::json json{{"task", "rounds"},     {"backend", job.backend},   {"problem", job.problem},
                      {"protocol", protocol}, {"ceilings", job.ceilings}, {"twin", job.twin}};
  json["entrants"] = nlohmann::json::array();
  for (const Entrant& entrant : job.entrants) json["entrants"].push_back(to_json(entrant));
  return json;
}

Outcome outcome_from_json(const nlohmann::json& json) {
  const auto number = [&](const char* name) {  // an infinite one is null
    return json.at(name).is_number() ? json.at(name).get<double>() : std::numeric_limits<double>::infinity();
  };
  Outcome outcome{};
  outcome.of.problem = json.at("problem");
  outcome.of.kernel = json.at("kernel");
  outcome.of.input = input_kind_from(json.at("input").get<std::string>());
  outcome.of.seed = json.at("seed");
  outcome.of.storage = storage_from(json.at("storage").get<std::string>());
  outcome.why = json.at("why");
  if (!json.at("supported").get<bool>()) outcome.unsupported = outcome.why;
  Judgement& j = outcome.judgement;
  j.ok = json.at("ok").get<bool>() || !outcome.unsupported.empty();
  j.failure = json.at("failure");
  j.rel_rms = number("rel_rms");
  j.rel_rms_ideal = number("rel_rms_ideal");
  j.rel_rms_bound = number("rel_rms_bound");
  j.max_ulp = number("max_ulp");
  j.max_ulp_bound = number("max_ulp_bound");
  j.lse_err = number("lse_err");
  j.lse_bound = number("lse_bound");
  j.worst = {json.at("worst").at("batch"), json.at("worst").at("head"), json.at("worst").at("row")};
  j.rows = json.at("rows");
  j.total_rows = json.at("total_rows");
  return outcome;
}

void serve(const nlohmann::json& job, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // whoever asked is gone: so is the reason to go on
  Lines lines(descriptor);
  try {
    if (job.at("task") == "check")
      serve_check(job, lines);
    else
      serve_rounds(job, lines);
  } catch (const Error& error) {
    lines.say({{"error", error.what()}, {"status", error.status}});
  } catch (const std::exception& error) {
    lines.say({{"error", error.what()}, {"status", ATTUNE_INTERNAL_ERROR}});
  }
}

}  // namespace attune::lab
