// attune explain: which kernel would run a problem, why that one, and what the others lack.
#include <fmt/format.h>

#include "core/error.hpp"
#include "dispatch/context.hpp"
#include "lab/cmd/commands.hpp"
#include "lab/cmd/common.hpp"

namespace attune::lab {
namespace {

struct ExplainOptions {
  std::string problem, kernel;
  bool json = false;
};

int explain(const ExplainOptions& options) {
  attune_options context_options{};
  context_options.struct_size = sizeof context_options;
  if (!options.kernel.empty()) context_options.kernel = options.kernel.c_str();
  Context context(context_options);
  const Problem problem = parse_problem(options.problem);
  const Selection selection = select(problem, context, options.kernel);
  if (!options.json) {
    fmt::print("{}", context.explain(desc_from(problem)));
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
        candidate.refusal.empty() ? nlohmann::json(candidate.predicted_seconds * 1e6) : nlohmann::json();
    json["candidates"].push_back(std::move(entry));
  }
  print_json(json);
  return selection.chosen == nullptr ? exit_unsupported : exit_ok;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "say which kernel would run a problem, and why");
  command->add_option("problem", options->problem, "a problem")->required();
  command->add_option("--kernel", options->kernel, "the only kernel allowed");
  command->add_flag("--json", options->json, "one object");
  command->footer(
      "examples:\n"
      "  attune explain 'fwd b1 h8/8 q512 k512 d64 f16'\n"
      "  attune explain 'fwd b1 h32/8 q1 k4096 d128 bf16' --json");
  command->callback([options, &status] { status = explain(*options); });
}

}  // namespace attune::lab
