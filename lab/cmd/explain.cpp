// attune explain: which kernel would run a problem, why that one and in which configuration, and what the others lack.
// For a GPU that is there, or for a typical one of an architecture.
#include <fmt/format.h>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"

namespace attune::lab {
namespace {

struct ExplainOptions {
  std::string problem, kernel, backend, arch;
  bool json = false;
};

std::unique_ptr<gpu::Runtime> runtime_for(const std::string& arch) {
  if (arch.empty()) return std::make_unique<gpu::Runtime>();
  return std::make_unique<gpu::Runtime>(std::vector{gpu::typical_device(arch)});
}

DeviceKind device_for(const ExplainOptions& options, const Context& context) {
  if (options.backend == "cpu") return DeviceKind::cpu;
  if (options.backend == "cuda") context.gpu().properties(0);  // throws if there is none
  return context.gpu().device_count() > 0 ? DeviceKind::cuda : DeviceKind::cpu;
}

int explain(const ExplainOptions& options) {
  attune_options context_options{};
  context_options.struct_size = sizeof context_options;
  if (!options.kernel.empty()) context_options.kernel = options.kernel.c_str();
  Context context(context_options, runtime_for(options.arch));
  Problem problem = parse_problem(options.problem);
  problem.device_kind = device_for(options, context);
  const Selection selection = select(problem, context, options.kernel);
  if (!options.json) {
    fmt::print("{}", options.arch.empty() ? context.explain(problem) : explanation(problem, selection, context));
    fmt::print("work: {:.4g} GFLOP, {:.4g} MB\n", useful_flops(problem) / 1e9, compulsory_bytes(problem) / 1e6);
    return selection.chosen == nullptr ? exit_unsupported : exit_ok;
  }
  nlohmann::json json;
  json["problem"] = to_string(problem);
  json["kernel"] = selection.chosen == nullptr ? nlohmann::json() : nlohmann::json(selection.chosen->name());
  json["why"] = selection.why;
  json["flops"] = useful_flops(problem);
  json["bytes"] = compulsory_bytes(problem);
  json["candidates"] = nlohmann::json::array();
  for (const Candidate& candidate : selection.candidates) {
    nlohmann::json entry{{"kernel", candidate.kernel->name()}, {"refusal", candidate.refusal}};
    entry["predicted_us"] =
        candidate.refusal.empty() ? nlohmann::json(candidate.offer.predicted_seconds * 1e6) : nlohmann::json();
    json["candidates"].push_back(std::move(entry));
  }
  json["configurations"] = nlohmann::json::array();
  if (selection.chosen != nullptr)
    for (const Configuration& configuration : selection.chosen->configurations(problem, context))
      json["configurations"].push_back(
          {{"config", configuration.text}, {"predicted_us", configuration.predicted_seconds * 1e6}});
  print_json(json);
  return selection.chosen == nullptr ? exit_unsupported : exit_ok;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "say which kernel would run a problem, and why");
  command->add_option("problem", options->problem, "a problem")->required();
  command->add_option("--kernel", options->kernel, "the only kernel allowed");
  add_backend_option(*command, options->backend);
  command->add_option("--arch", options->arch, "on a typical GPU of this architecture, which need not be here")
      ->excludes("--backend");
  command->add_flag("--json", options->json, "one object");
  command->footer(
      "examples:\n"
      "  attune explain 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune explain 'fwd b1 h8/8 q512 k512 d64 f16' --arch sm_90a\n"
      "  attune explain 'fwd b1 h32/8 q1 k4096 d128 bf16' --json");
  command->callback([options, &status] { status = explain(*options); });
}

}  // namespace attune::lab
