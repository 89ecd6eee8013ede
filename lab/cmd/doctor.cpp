// attune doctor: what this machine can do at most, and whether what is measured on it can be trusted.
#include <fmt/format.h>

#include <cstdlib>

#include "core/error.hpp"
#include "gpu/runtime.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"
#include "lab/measure/ceilings.hpp"
#include "lab/measure/environment.hpp"
#include "lab/progress.hpp"
#include "lab/text.hpp"

namespace attune::lab {
namespace {

struct DoctorOptions {
  std::string backend;
  bool json = false;
};

// One thing that was looked at, and whether it is as it should be.
struct Finding {
  std::string name, text;
  bool ok = true;
};

struct Diagnosis {
  std::string backend, machine;
  std::vector<Ceiling> ceilings;
  std::vector<Finding> findings;

  bool fit() const {
    return std::ranges::all_of(findings, [](const Finding& finding) { return finding.ok; });
  }
};

// An interval can hold 1 because it holds nearly everything.
Finding finding_of(const NoiseFloor& floor) {
  constexpr double widest = 0.05;
  const stats::Interval& interval = floor.comparison.verdict.interval;
  if (!floor.fit || interval.upper - interval.lower <= widest) return {"A/A", floor.reason, floor.fit};
  return {
      "A/A",
      fmt::format("the interval [{:.4f}, {:.4f}] of two copies is wider than {:g} %: smaller differences do not show",
                  interval.lower, interval.upper, 100 * widest),
      false};
}

// Read right after the load of the A/A run. The power cap is how a card under matrix products lives; heat is not.
Finding clock_finding(const Facts& state) {
  const auto held = state.find("clock_held_by");
  if (held == state.end()) return {"clock", "NVML does not tell what holds the clock down", true};
  const bool hot = held->second.find("thermal") != std::string::npos ||
                   held->second.find("hardware slowdown") != std::string::npos ||
                   held->second.find("power brake") != std::string::npos;
  const auto fact = [&](const char* name) { return state.contains(name) ? state.at(name) : std::string("?"); };
  return {"clock",
          fmt::format("held down by: {}; {} MHz, {} W, {} degrees", held->second, fact("sm_clock_mhz"),
                      fact("power_watts"), fact("temperature_celsius")),
          !hot};
}

Finding process_finding(std::optional<int> processes) {
  if (!processes) return {"other processes", "NVML does not tell who uses the card", true};
  const int others = std::max(*processes - 1, 0);
  return {"other processes", others == 0 ? "none on the card" : fmt::format("{} on the card", others), others == 0};
}

// Before anything of ours runs.
Finding load_finding(int threads) {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return {"load", "the system does not tell", true};
  const double allowed = 0.5 + 0.25 * threads;
  return {"load", fmt::format("{:.2f} over the last minute, for {}", load, counted(threads, "thread")),
          load <= allowed};
}

Diagnosis diagnose_gpu(ProgressLine& progress) {
  CudaGpu gpu;
  Diagnosis diagnosis;
  diagnosis.backend = "cuda";
  diagnosis.machine = gpu.facts().at("card");
  diagnosis.findings.push_back(process_finding(gpu.processes()));
  diagnosis.ceilings =
      gpu_ceilings(gpu, [&](std::string_view name) { progress.say(fmt::format("measuring {}", name)); });
  progress.say("A/A");
  diagnosis.findings.push_back(finding_of(gpu_noise_floor(gpu)));
  diagnosis.findings.push_back(clock_finding(gpu.state("")));
  return diagnosis;
}

Diagnosis diagnose_cpu(cpu::Threads& threads, ProgressLine& progress) {
  Diagnosis diagnosis;
  diagnosis.backend = "cpu";
  diagnosis.machine = fmt::format("{}, {}", host_facts().at("processor"), counted(threads.size(), "thread"));
  diagnosis.findings.push_back(load_finding(threads.size()));
  diagnosis.ceilings =
      cpu_ceilings(threads, [&](std::string_view name) { progress.say(fmt::format("measuring {}", name)); });
  progress.say("A/A");
  diagnosis.findings.push_back(finding_of(cpu_noise_floor(threads)));
  return diagnosis;
}

nlohmann::json to_json(const Ceiling& ceiling) {
  nlohmann::json json = {{"name", ceiling.name}, {"about", ceiling.about}, {"unit", ceiling.unit}};
  if (!ceiling.absence.empty()) {
    json["absence"] = ceiling.absence;
    return json;
  }
  json["value"] = ceiling.value;
  json["lo"] = ceiling.lower;
  json["hi"] = ceiling.upper;
  if (ceiling.clock_hz > 0) json["clock_mhz"] = ceiling.clock_hz / 1e6;
  if (ceiling.share) json["share_of_clock"] = *ceiling.share;
  return json;
}

nlohmann::json to_json(const Diagnosis& diagnosis) {
  nlohmann::json ceilings = nlohmann::json::array(), findings = nlohmann::json::array();
  for (const Ceiling& ceiling : diagnosis.ceilings) ceilings.push_back(to_json(ceiling));
  for (const Finding& finding : diagnosis.findings)
    findings.push_back({{"name", finding.name}, {"ok", finding.ok}, {"text", finding.text}});
  return {{"backend", diagnosis.backend},
          {"machine", diagnosis.machine},
          {"ceilings", std::move(ceilings)},
          {"findings", std::move(findings)},
          {"fit", diagnosis.fit()}};
}

std::string clock_text(const Ceiling& ceiling) {
  if (ceiling.clock_hz <= 0) return "-";
  const std::string clock = fmt::format("{:.0f} MHz", ceiling.clock_hz / 1e6);
  return ceiling.share ? fmt::format("{}, {:.1f} % of what it allows", clock, 100 * *ceiling.share) : clock;
}

void print_text(const Diagnosis& diagnosis) {
  fmt::print("{}: {}\n", diagnosis.backend, diagnosis.machine);
  Table ceilings({{"ceiling"}, {"measured", Table::Align::right}, {"unit"}, {"clock"}, {"by"}});
  for (const Ceiling& c : diagnosis.ceilings)
    ceilings.add(c.absence.empty()
                     ? std::vector<std::string>{c.name,
                                                fmt::format("{:.4g} [{:.4g}, {:.4g}]", c.value, c.lower, c.upper),
                                                c.unit, clock_text(c), c.about}
                     : std::vector<std::string>{c.name, "-", c.unit, "-", c.absence});
  Table findings({{"looked at"}, {"fit"}, {"found"}});
  for (const Finding& finding : diagnosis.findings)
    findings.add({finding.name, finding.ok ? "yes" : "no", finding.text});
  fmt::print("{}\n{}{}\n", ceilings.text(), findings.text(), diagnosis.fit() ? "fit to measure" : "not fit to measure");
}

int doctor(const DoctorOptions& options) {
  const bool gpu = gpu::Runtime().device_count() > 0;
  if (options.backend == "cuda" && !gpu) fail(ATTUNE_NO_DEVICE, "there is no GPU here: {}", gpu::Runtime().absence());
  cpu::Threads threads(lab_thread_options());
  std::vector<Diagnosis> diagnoses;
  {
    ProgressLine progress;
    if (gpu && options.backend != "cpu") diagnoses.push_back(diagnose_gpu(progress));
    if (options.backend != "cuda") diagnoses.push_back(diagnose_cpu(threads, progress));
  }
  bool fit = true;
  for (const Diagnosis& diagnosis : diagnoses) {
    if (options.json)
      print_json(to_json(diagnosis));
    else
      print_text(diagnosis);
    fit &= diagnosis.fit();
  }
  return fit ? exit_ok : exit_failed_check;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command =
      app.add_subcommand("doctor", "what this machine can do at most, and whether it is fit to measure");
  add_backend_option(*command, options->backend);
  command->add_flag("--json", options->json, "one object per backend and line");
  command->footer(
      "Every figure comes from the engine that bench uses (docs/measuring.md). exit status: 0 fit, 1 not fit.\n\n"
      "examples:\n"
      "  attune doctor\n"
      "  attune doctor --backend cuda --json");
  command->callback([options, &status] { status = doctor(*options); });
}

}  // namespace attune::lab
